"""What HTTP transports ask before a request and after a refusal. Implemented by `identity` for logins, and by
`header_command`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.principal import LOCAL_PRINCIPAL, Principal


@dataclass(frozen=True)
class LoginOffer:
    """The address where a person can log in now, and a function that waits for the login."""

    address: str
    done: Callable[[], Awaitable[object]]


class Authorization(Protocol):
    """Provides the headers that authenticate us to a server."""

    async def headers(self) -> Mapping[str, str]:
        """The headers for the next request. Raises `LoginNeeded` if the server is known to refuse it."""
        ...

    async def refused(self, status: int, challenges: str, sent: Mapping[str, str]) -> bool:
        """Handle the refusal of a request with these headers. True if other headers are worth another attempt."""
        ...

    def secrets(self) -> Mapping[str, str]:
        """The credentials in use, by name, which must never be shown."""
        ...

    async def missing(self) -> str:
        """Why a login has to be made first, as far as that is known without asking the server; empty if it is not."""
        ...

    async def until_login(self) -> None:
        """Wait until a person has logged in."""
        ...

    async def has_another(self) -> bool:
        """Whether a person has logged in since the last login was missing or refused."""
        ...

    def offered(self) -> AbstractAsyncContextManager[LoginOffer]:
        """Offer a login that can be made while the context is open."""
        ...


AuthorizeOne = Callable[[ServerSpec], Authorization | None]
"""Returns one caller's authorization for a server; None if it needs none."""


class Authorize(Protocol):
    """Returns a caller's authorization for a server; None if it needs none."""

    def __call__(self, spec: ServerSpec, principal: Principal = LOCAL_PRINCIPAL) -> Authorization | None: ...


def no_authorization(spec: ServerSpec, principal: Principal = LOCAL_PRINCIPAL) -> Authorization | None:
    """Send only the headers of the server's entry."""
    del spec, principal
    return None
