"""The HTTP client for one server: its headers, its proxy, kept connections. Knows no MCP."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.request import getproxies, proxy_bypass

import httpx2

from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.upstream.connections import KeptConnections
from mcp_optimizer.upstream.http_requests import Origin, origin_of, written_headers, written_line
from mcp_optimizer.upstream.spec import ServerSpec

CONNECT_TIMEOUT = 10.0
_IDLE = 3.0
"""Seconds an idle connection is kept: less than servers keep theirs (often 5), so the server does not close one at the
moment it is used.
"""


class _Beginning(NamedTuple):
    """The same part of many requests: the address, and the headers that the entry or httpx gives to each."""

    url: httpx2.URL
    own: frozenset[bytes]
    origin: Origin
    head: bytes


class KeptClient(httpx2.AsyncClient):
    """A client over kept connections."""

    def __init__(self, kept: KeptConnections, headers: Mapping[str, str], timeout: httpx2.Timeout) -> None:
        super().__init__(transport=kept, headers=headers, timeout=timeout)
        self._kept = kept
        self._patience = timeout.connect
        self._beginnings: dict[str, _Beginning] = {}
        """By method."""

    async def exchange(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        """The response, not yet read, which the caller closes.

        As by `send`, which spends as much time on redirects, cookies and passwords in addresses as on all the rest,
        and nearly no server has any.
        """
        if self.is_closed or url.userinfo or len(self.cookies.jar):
            request = self.build_request(method, url, content=content, headers=headers)
            return await self.send(request, stream=True)
        own = {name.lower().encode("ascii"): value.encode("ascii") for name, value in headers.items()}
        if content is not None:
            own[b"content-length"] = b"%d" % len(content)
        begun = self._beginning(method, url, own.keys())
        message = begun.head + written_headers(own.items()) + b"\r\n" + (content or b"")
        response = await self._kept.exchange(begun.origin, message, self._patience)
        if "set-cookie" in response.headers:
            request = self.build_request(method, url)
            said = httpx2.Response(response.status_code, headers=response.headers.raw, request=request)
            self.cookies.extract_cookies(said)
        return response

    def _beginning(self, method: str, url: httpx2.URL, own: Collection[bytes]) -> _Beginning:
        """What all requests to this address begin with, which have headers of their own with these names."""
        known, names = self._beginnings.get(method), frozenset(own)
        if known is None or known.url is not url or known.own != names:
            others = [header for header in self.build_request(method, url).headers.raw if header[0].lower() not in own]
            head = written_line(method, url) + written_headers(others)
            known = self._beginnings[method] = _Beginning(url, names, origin_of(url), head)
        return known


@cache
def _ssl_context() -> Any:
    # Building one takes about 40 ms, so all HTTP servers share it.
    return httpx2.create_ssl_context()


def http_client(spec: ServerSpec, limits: Limits = DEFAULT_LIMITS) -> httpx2.AsyncClient:
    """A client for one server, through the proxy from the environment, if any."""
    # No read timeout: a stream may be silent for hours, and each call has its own deadline.
    timeout = httpx2.Timeout(CONNECT_TIMEOUT, read=None)
    # The only encoding whose size `http_bodies` can bound.
    headers = {"accept-encoding": "gzip", **spec.headers}
    # Any number of connections: the number of calls is limited elsewhere, and streams stay open for hours.
    if is_proxied_address(httpx2.URL(spec.url)):
        kept = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_IDLE)
        return httpx2.AsyncClient(headers=headers, timeout=timeout, verify=_ssl_context(), limits=kept)
    transport = KeptConnections(_ssl_context, _IDLE, limits.answer_header_bytes)
    return KeptClient(transport, headers, timeout)


def is_proxied_address(url: httpx2.URL) -> bool:
    """Whether the environment has a proxy for it."""
    return not getproxies().keys().isdisjoint({url.scheme, "all"}) and not proxy_bypass(url.host)
