"""The host name under which browsers keep a sign-in to a gateway on loopback; no other program knows it.

Cookies belong to a host name, whatever the port: a browser sends a cookie for 127.0.0.1 to every program that listens
on a port there. Names under `.localhost` also lead to this machine, so sign-ins get one of their own. It is derived
from the key that gateways share, and disclosed only to visitors who are signed in.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.requests import Request

from mcp_optimizer.domain.addresses import is_loopback
from mcp_optimizer.errors import CatalogError, ConfigurationError
from mcp_optimizer.runtime.local_names import LocalNames
from mcp_optimizer.runtime.signatures import Signatures

_PURPOSE = "the name of the dashboard"
_END = ".localhost"
_PATIENCE = 8.0
"""Seconds to wait for the shared key."""
_LOOK_AGAIN = 0.1
_TAKEN = (
    "Another program listens at {}, where browsers would send the sign-in. End it, or serve at another port, and "
    "restart the gateway. With --by-address, a browser is only sent to the gateway's own address."
)
_UNKNOWN = "the key that gateways share cannot be read"


class SignInHost:
    """The host name, available once the shared key is read."""

    def __init__(self, signatures: Signatures, local_names: LocalNames) -> None:
        self._signatures = signatures
        self._local_names = local_names

    async def origin(self, port: int | None) -> str:
        """The origin at which a browser signs in. Raises CatalogError while the name is not known, and
        ConfigurationError if such a name may lead to another program.
        """
        if taken_at := self._local_names.taken_at:
            raise ConfigurationError(_TAKEN.format(taken_at))
        await self._look()
        if not (name := self._name()):
            raise CatalogError(_UNKNOWN)
        return f"http://{name}:{port}" if port is not None else f"http://{name}"

    async def admits(self, request: Request) -> bool:
        """Whether a request was sent to this name; waits for the name in a process that has just started."""
        if _parts(request)[0].endswith(_END):
            await self._look()
        return self.is_named(request)

    def is_named(self, request: Request) -> bool:
        """Whether a request was sent to this name, if it is known."""
        given = _parts(request)[0].encode("utf-8", "surrogatepass")
        return bool(given) and hmac.compare_digest(given, self._name().encode())

    async def _look(self) -> None:
        """Waits longer than usual: a person who has just started the gateway prefers a short wait to an error."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._signatures.look()
                while self._signatures.is_waiting:
                    await asyncio.sleep(_LOOK_AGAIN)
                    await self._signatures.look()

    def _name(self) -> str:
        mark = self._signatures.shared_mark(_PURPOSE)
        # Host names ignore case, so the mark itself, which has capitals, cannot be used.
        return f"{hashlib.sha256(mark.encode()).hexdigest()[:32]}{_END}" if mark else ""


def is_shared(request: Request) -> bool:
    """Whether other programs may have pages under the host name of a request: it means any port of this machine."""
    return request.scope.get("scheme") == "http" and is_loopback(_parts(request)[0])


def port_of(request: Request) -> int | None:
    """The port that the browser uses, which a tunnel may have changed."""
    return _parts(request)[1]


def listening_at(request: Request) -> str:
    """The gateway's listening address, which is not secret, with the browser's port."""
    listens, _ = request.scope.get("server") or ("", None)
    host, port = listens if is_loopback(listens) else "127.0.0.1", port_of(request)
    return f"http://{f'[{host}]' if ':' in host else host}" + (f":{port}" if port is not None else "")


def _parts(request: Request) -> tuple[str, int | None]:
    """The name and port in the Host header; an empty name if it cannot be read."""
    try:
        given = urlsplit(f"http://{request.headers.get('host', '')}")
        return given.hostname or "", given.port
    except ValueError:
        return "", None
