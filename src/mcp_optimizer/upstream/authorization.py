"""What HTTP transports ask before a request and after a refusal. Implemented by `identity`, which knows logins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from mcp_optimizer.upstream.spec import ServerSpec


class LoginNeeded(Exception):
    """The server wants a login that only a person can make."""


class Authorization(Protocol):
    """Headers that tell a server who calls."""

    async def headers(self) -> Mapping[str, str]:
        """For the next request. Raises `LoginNeeded` if it is known that the server would refuse."""
        ...

    async def refused(self, status: int, challenges: str, sent: Mapping[str, str]) -> bool:
        """The server refused a request with these headers. True if other headers are worth another attempt."""
        ...


Authorize = Callable[[ServerSpec], Authorization | None]
"""How a server is told who calls; None if it need not know."""


def nobody(_spec: ServerSpec) -> Authorization | None:
    """No server is told anything beyond the headers of its entry."""
    return None
