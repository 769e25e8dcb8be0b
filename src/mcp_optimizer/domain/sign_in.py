"""What is remembered of somebody who signed in on the dashboard. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
