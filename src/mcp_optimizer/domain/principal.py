"""Who a caller is, once verified, and what that alone permits. Frozen values; nothing here verifies anybody."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Risk(StrEnum):
    """What a tool may do at worst, in increasing order."""

    READ = "read"
    WRITE = "write"
    DESTRUCTIVE = "destructive"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def covers(self, other: Risk) -> bool:
        """Whether somebody who may do this may do the other."""
        return self.rank >= other.rank


_RANKS = {Risk.READ: 0, Risk.WRITE: 1, Risk.DESTRUCTIVE: 2}


class Role(StrEnum):
    """What somebody may do on the dashboard, in increasing order."""

    NONE = "none"
    SEE = "see"
    MANAGE = "manage"

    def covers(self, other: Role) -> bool:
        """Whether somebody with this role may do what the other permits."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True)
class Principal:
    """One verified caller, or the one that stands for everybody who is not.

    Two callers with different `id`s share nothing. `name` is what rules match and people read; it starts with what
    vouches for it (`key:ci`, `corp:alice`), so nobody can take the name of another kind of caller.
    """

    id: str
    name: str
    tenant: str = ""
    """Whose caller this is, if a claim says so."""
    servers: frozenset[str] | None = None
    """The servers that it may use; None: all."""
    risk: Risk = Risk.DESTRUCTIVE
    """The worst class of tools that it may call."""
    profile: str | None = None
    """The profile of registered tools that it gets."""
    role: Role = Role.NONE
    scopes: frozenset[str] | None = None
    """The scopes of its token; None: it has no token, so no scope can be missing."""
    classes: frozenset[Risk] | None = None
    """The classes of tools that its token's scopes are enough for; None: all. Others exist for it, because a client can
    get a token with more scopes, but are not called.
    """
    calls_per_minute: int | None = None
    """Its own rate limit; None: that of the settings, 0: none."""
    is_verified: bool = True

    @property
    def is_one_of_many(self) -> bool:
        """Whether there may be other callers, who want their share."""
        return self.is_verified and self is not LOCAL_PRINCIPAL

    @cached_property
    def is_limited(self) -> bool:
        """Whether there are servers or classes of tools that it may not use, whatever the rules say."""
        return self.servers is not None or self.risk is not Risk.DESTRUCTIVE


LOCAL_PRINCIPAL = Principal("local", "local", role=Role.MANAGE)
"""Whoever started the gateway, and speaks to it on stdio, by the command line or as a library."""

ANYONE = Principal("anyone", "anyone", role=Role.SEE, is_verified=False)
"""Everybody who reaches an open gateway over HTTP. Nothing tells one of them from another."""
