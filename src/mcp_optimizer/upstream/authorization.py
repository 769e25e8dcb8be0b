"""What HTTP transports ask before a request and after a refusal. Implemented by `identity`, which knows logins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from mcp_optimizer.config.serverfile.spec import ServerSpec


@dataclass(frozen=True)
class LoginOffer:
    """Where a person can log in now, and the end of that."""

    address: str
    done: Callable[[], Awaitable[object]]


class Authorization(Protocol):
    """Headers that tell a server who calls."""

    async def headers(self) -> Mapping[str, str]:
        """For the next request. Raises `LoginNeeded` if it is known that the server would refuse."""
        ...

    async def refused(self, status: int, challenges: str, sent: Mapping[str, str]) -> bool:
        """The server refused a request with these headers. True if other headers are worth another attempt."""
        ...

    def secrets(self) -> Mapping[str, str]:
        """What is sent now, by name: never to be shown."""
        ...

    async def until_login(self) -> None:
        """Wait until a person has logged in."""
        ...

    def offered(self) -> AbstractAsyncContextManager[LoginOffer]:
        """A login that can be made while the context is open."""
        ...


Authorize = Callable[[ServerSpec], Authorization | None]
"""How a server is told who calls; None if it need not know."""


def no_authorization(_spec: ServerSpec) -> Authorization | None:
    """No server is told anything beyond the headers of its entry."""
    return None
