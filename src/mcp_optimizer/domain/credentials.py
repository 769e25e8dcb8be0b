"""An API key and a sign-in on the dashboard, as they are kept. Frozen values; nothing verifies here.

A key has what it permits, for how long, and a hash of its secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from mcp_optimizer.domain.principal import Principal, Risk, Role


@dataclass(frozen=True)
class ApiKey:
    """One key. Times are in milliseconds since 1970."""

    id: str
    name: str
    digest: bytes = field(repr=False)
    """SHA-256 of its secret."""
    created_at_ms: int
    servers: frozenset[str] | None = None
    """The servers that it opens; None: all."""
    risk: Risk = Risk.READ
    role: Role = Role.NONE
    profile: str | None = None
    calls_per_minute: int | None = None
    expires_at_ms: int | None = None
    """None: never."""
    used_at_ms: int | None = None
    revoked_at_ms: int | None = None

    def is_living(self, now_ms: int) -> bool:
        return self.state(now_ms) == "living"

    def state(self, now_ms: int) -> str:
        if self.revoked_at_ms is not None:
            return "revoked"
        return "expired" if self.expires_at_ms is not None and self.expires_at_ms <= now_ms else "living"

    @cached_property
    def principal(self) -> Principal:
        """Whoever holds it. The same object each time, because every call asks."""
        return Principal(
            id=f"key:{self.id}",
            name=f"key:{self.name}",
            servers=self.servers,
            risk=self.risk,
            profile=self.profile,
            role=self.role,
            calls_per_minute=self.calls_per_minute,
        )


class SignInKind(StrEnum):
    """What somebody showed to sign in."""

    TICKET = "ticket"
    """Nobody yet: what one browser may show once, to be signed in."""
    OWNER = "owner"
    """A ticket, so it is the user who runs the gateway."""
    DASHBOARD = "dashboard"
    """The dashboard's token."""
    KEY = "key"


@dataclass(frozen=True)
class SignIn:
    """One sign-in, or a ticket for one."""

    kind: SignInKind
    until: float
    """Seconds since 1970."""
    bound_to: str = ""
    """The id of the key; of the dashboard's token, a digest that is another one for each sign-in; of a ticket, which of
    the two it stands for, or nothing: the owner.
    """
