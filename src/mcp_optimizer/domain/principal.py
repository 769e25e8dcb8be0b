"""A verified caller's identity and the permissions that come with it. Frozen values; this module verifies no one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any


class Risk(StrEnum):
    """The worst that a tool may do, in increasing order."""

    READ = "read"
    WRITE = "write"
    DESTRUCTIVE = "destructive"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def covers(self, other: Risk) -> bool:
        """Whether permission for this class includes the other."""
        return self.rank >= other.rank


_RANKS = {Risk.READ: 0, Risk.WRITE: 1, Risk.DESTRUCTIVE: 2}


class Role(StrEnum):
    """A role on the dashboard, in increasing order of permissions."""

    NONE = "none"
    SEE = "see"
    MANAGE = "manage"

    def covers(self, other: Role) -> bool:
        """Whether this role includes the permissions of the other."""
        order = list(Role)
        return order.index(self) >= order.index(other)


HOLDER = "holder"
"""What the id and the name of a person with keys begin with. Ids of tokens begin otherwise, and no issuer has this
name, so a key is never the person that a token speaks for.
"""


@dataclass(frozen=True)
class Principal:
    """One verified caller, or the one that stands for all unverified callers.

    Two callers with different `id`s share nothing. `name` is what rules match and people read; it starts with the
    source that vouches for it (`key:ci`, `holder:ada`, `corp:alice`), so no caller can take the name of a caller of
    another kind.
    """

    id: str
    name: str
    tenant: str = ""
    """The tenant of this caller, if a claim names one."""
    servers: frozenset[str] | None = None
    """The servers that it may use; None: all."""
    risk: Risk = Risk.DESTRUCTIVE
    """The highest risk class of tools that it may call."""
    profile: str | None = None
    """The profile of registered tools that it gets."""
    role: Role = Role.NONE
    scopes: frozenset[str] | None = None
    """The scopes of its token; None: it has no token, so no scope can be missing."""
    classes: frozenset[Risk] | None = None
    """The risk classes for which its token's scopes suffice; None: all. It sees tools of other classes, because a
    client can get a token with more scopes, but cannot call them.
    """
    calls_per_minute: int | None = None
    """Its own rate limit; None: that of the settings, 0: none."""
    groups: frozenset[str] = frozenset()
    """The groups and roles that a claim of its token names. Texts of the issuer: never patterns, never callers."""
    is_verified: bool = True
    key: str = ""
    """The name of the key with which it came, if it may have several."""
    claims: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What its verified token says, for entries that act with it. Two principals that differ only here are equal."""

    @property
    def name_in_audit(self) -> str:
        """Who it is and, if it has several keys, by which one. No holder contains a space."""
        return f"{self.name} by key {self.key}" if self.key else self.name

    @property
    def is_one_of_many(self) -> bool:
        """Whether there may be other callers with whom it must share resources."""
        return self.is_verified and self is not LOCAL_PRINCIPAL

    @cached_property
    def is_limited(self) -> bool:
        """Whether some servers or risk classes are closed to it, whatever the rules say."""
        return self.servers is not None or self.risk is not Risk.DESTRUCTIVE


LOCAL_PRINCIPAL = Principal("local", "local", role=Role.MANAGE)
"""The user who started the gateway and uses it on stdio, by the command line or as a library."""

ANYONE = Principal("anyone", "anyone", role=Role.SEE, is_verified=False)
"""Every caller that reaches an open gateway over HTTP. The gateway cannot tell them apart."""
