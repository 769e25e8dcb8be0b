"""The stored form of an API key and of a dashboard sign-in. Frozen values; this module verifies nothing.

A key has its permissions, its lifetime, and a hash of its secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from mcp_optimizer.domain.principal import HOLDER, Principal, Risk, Role


@dataclass(frozen=True)
class ApiKey:
    """One key. Times are in milliseconds since 1970."""

    id: str
    name: str
    digest: bytes = field(repr=False)
    """SHA-256 of its secret."""
    created_at_ms: int
    servers: frozenset[str] | None = None
    """The servers that it gives access to; None: all."""
    risk: Risk = Risk.READ
    role: Role = Role.NONE
    profile: str | None = None
    calls_per_minute: int | None = None
    expires_at_ms: int | None = None
    """None: never."""
    used_at_ms: int | None = None
    revoked_at_ms: int | None = None
    holder: str = ""
    """The person whose keys are one caller; empty: the key is a caller of its own."""
    stands_for: str = ""
    """The id of the first key that this one replaces, under which everything of its caller is kept."""
    replaced_at_ms: int | None = None
    """When another key was made in its place; it stays valid until it expires."""

    def is_living(self, now_ms: int) -> bool:
        return self.state(now_ms) == "in use"

    def state(self, now_ms: int) -> str:
        if self.revoked_at_ms is not None:
            return "revoked"
        return "expired" if self.expires_at_ms is not None and self.expires_at_ms <= now_ms else "in use"

    @cached_property
    def principal(self) -> Principal:
        """The principal of the key. Always the same object, because every call needs it."""
        return Principal(
            id=f"{HOLDER}:{self.holder}" if self.holder else f"key:{self.stands_for or self.id}",
            name=f"{HOLDER}:{self.holder}" if self.holder else f"key:{self.name}",
            key=self.name if self.holder else "",
            servers=self.servers,
            risk=self.risk,
            profile=self.profile,
            role=self.role,
            calls_per_minute=self.calls_per_minute,
        )


class SignInKind(StrEnum):
    """What was used to sign in."""

    TICKET = "ticket"
    """Not signed in yet: a ticket that one browser may use once to sign in."""
    OWNER = "owner"
    """A ticket of the user who runs the gateway."""
    DASHBOARD = "dashboard"
    """The dashboard's token."""
    KEY = "key"
    PERSON = "person"
    """A token issuer, at which the person signed in."""
    USED = "used"
    """No sign-in: the mark that an answer of a token issuer was used."""


@dataclass(frozen=True)
class SignIn:
    """One sign-in, or a ticket for one."""

    kind: SignInKind
    until: float
    """Seconds since 1970."""
    bound_to: str = ""
    """For a key, its id; for a person, what the issuer said; for the dashboard's token, a digest that differs for each
    sign-in; for a ticket, which of the two it stands for, or empty for the owner.
    """
