"""Host, Origin and Content-Type of requests, as the SDK admits them, so a web page cannot reach a gateway on loopback.

Nearly every request says the same as one before, which was looked at. Called by the gate.
"""

from __future__ import annotations

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response

from mcp_optimizer.relay.head import Fields, fields_of

_MOST_KNOWN = 64
_LONGEST = 1_000
"""Bytes of what is remembered of a request."""


class Hosts:
    """Knows what admitted requests said."""

    def __init__(self, hosts: TransportSecuritySettings | None) -> None:
        self._check = TransportSecurityMiddleware(hosts)
        self._admitted: set[tuple[bytes | str | None, ...]] = set()

    def has_admitted(self, method: str, fields: Fields) -> bool:
        """Whether a request said the same before, and was right."""
        return _said(method, fields) in self._admitted

    async def refusal(self, request: Request) -> Response | None:
        """What a request is answered if it is not admitted."""
        refusal = await self._check.validate_request(request, is_post=request.method == "POST")
        said = _said(request.method, fields_of(request.scope))
        if refusal is None and sum(len(part or b"") for part in said) <= _LONGEST:
            if len(self._admitted) >= _MOST_KNOWN:
                self._admitted.clear()
            self._admitted.add(said)
        return refusal


def _said(method: str, fields: Fields) -> tuple[bytes | str | None, ...]:
    return method, fields.get(b"host"), fields.get(b"origin"), fields.get(b"content-type")
