"""How long calls wait for their clients' answers, how many may, and how a waiting call is named."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

NameCall = Callable[[str], Awaitable[str]]
"""Names a call that begins to wait, for the principal with this id; the name cannot be guessed."""


async def random_name(_principal: str) -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class ParkingLimits:
    """How long a call waits for its client's answers, and how many calls may."""

    seconds: float = 300.0
    most: int = 256
    most_of_one: int = 32
