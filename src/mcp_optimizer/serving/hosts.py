"""Checks Host, Origin, Content-Type and Accept of requests with the SDK's rules.

The check of Host and Origin prevents web pages from reaching a gateway on loopback. Nearly every request repeats the
headers of an earlier one, so checked combinations are remembered. Called by the gate and by both eras.
"""

from __future__ import annotations

from functools import lru_cache

from mcp.server.streamable_http import check_accept_headers
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response

from mcp_optimizer.serving.relay.head import Fields, fields_of

_MOST_KNOWN = 64
_LONGEST = 1_000
"""Maximum bytes of a remembered combination."""
_USUAL_ACCEPT = 200
_JSON = b"application/json"


class Hosts:
    """Remembers the headers of admitted requests."""

    def __init__(self, hosts: TransportSecuritySettings | None) -> None:
        self._check = TransportSecurityMiddleware(hosts)
        self._admitted: set[tuple[bytes | str | None, ...]] = set()

    def has_admitted(self, method: str, fields: Fields) -> bool:
        """Whether a request with the same headers was admitted before."""
        return _said(method, fields) in self._admitted

    async def refusal(self, request: Request) -> Response | None:
        """The response to a request that is not admitted; None if it is."""
        refusal = await self._check.validate_request(request, is_post=request.method == "POST")
        said = _said(request.method, fields_of(request.scope))
        if refusal is None and sum(len(part or b"") for part in said) <= _LONGEST:
            if len(self._admitted) >= _MOST_KNOWN:
                self._admitted.clear()
            self._admitted.add(said)
        return refusal


def _said(method: str, fields: Fields) -> tuple[bytes | str | None, ...]:
    return method, fields.get(b"host"), fields.get(b"origin"), fields.get(b"content-type")


def accepts(fields: Fields) -> tuple[bool, bool]:
    """Whether a client accepts JSON, and whether it accepts streams."""
    accept = fields.get(b"accept", b"")
    return _known_accept(accept) if len(accept) <= _USUAL_ACCEPT else _read_accept(accept)


def _read_accept(accept: bytes) -> tuple[bool, bool]:
    return check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept)]}))


_known_accept = lru_cache(maxsize=_MOST_KNOWN)(_read_accept)


def is_json(fields: Fields) -> bool:
    """Whether a body is declared as JSON. Faster than the SDK's check, which it has already passed."""
    kind = fields.get(b"content-type", b"")
    return kind == _JSON or kind.partition(b";")[0].strip().lower() == _JSON
