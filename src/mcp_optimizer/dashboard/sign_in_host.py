"""The host name under which browsers keep a sign-in to a gateway on loopback: one that no other program knows.

Cookies are kept by name, whatever the port: what a browser keeps for 127.0.0.1, it sends to every program that listens
on a port there. Names under `.localhost` lead to this machine too, so a sign-in has one of those to itself. It is
derived from the key that gateways share, and only disclosed to visitors who are signed in.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.requests import Request

from mcp_optimizer.domain.addresses import is_loopback
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.signatures import Signatures

_PURPOSE = "the name of the dashboard"
_END = ".localhost"
_PATIENCE = 8.0
"""Seconds to wait for the shared key."""
_LOOK_AGAIN = 0.1
_UNKNOWN = "the key that gateways share cannot be read"


class SignInHost:
    """The name, as soon as the shared key was read."""

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures

    async def origin(self, port: int | None) -> str:
        """Where a browser signs in; raises CatalogError while it is not known."""
        await self._look()
        if not (name := self._name()):
            raise CatalogError(_UNKNOWN)
        return f"http://{name}:{port}" if port is not None else f"http://{name}"

    async def admits(self, request: Request) -> bool:
        """Whether a request was sent to this name, which a process that has just started may not know yet."""
        if _parts(request)[0].endswith(_END):
            await self._look()
        return self.is_named(request)

    def is_named(self, request: Request) -> bool:
        """Whether a request was sent to this name."""
        given = _parts(request)[0].encode("utf-8", "surrogatepass")
        return bool(given) and hmac.compare_digest(given, self._name().encode())

    async def _look(self) -> None:
        """A person who has just started the gateway would rather wait than be told to come again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._signatures.look()
                while self._signatures.is_waiting:
                    await asyncio.sleep(_LOOK_AGAIN)
                    await self._signatures.look()

    def _name(self) -> str:
        mark = self._signatures.shared_mark(_PURPOSE)
        # Names are read without regard to case, so not the letters of the mark itself.
        return f"{hashlib.sha256(mark.encode()).hexdigest()[:32]}{_END}" if mark else ""


def is_shared(request: Request) -> bool:
    """Whether other programs may have pages under the name that a request was sent to: any port of this machine."""
    return request.scope.get("scheme") == "http" and is_loopback(_parts(request)[0])


def port_of(request: Request) -> int | None:
    """The port by which the browser reaches us, which a tunnel may have changed."""
    return _parts(request)[1]


def listening_at(request: Request) -> str:
    """The address that the gateway listens at, which is no secret, by the port of the browser."""
    listens, _ = request.scope.get("server") or ("", None)
    host, port = listens if is_loopback(listens) else "127.0.0.1", port_of(request)
    return f"http://{f'[{host}]' if ':' in host else host}" + (f":{port}" if port is not None else "")


def _parts(request: Request) -> tuple[str, int | None]:
    """The name and port of the Host header; an empty name if it cannot be read."""
    try:
        given = urlsplit(f"http://{request.headers.get('host', '')}")
        return given.hostname or "", given.port
    except ValueError:
        return "", None
