"""The HTTP client for one server: its headers, its proxy, kept connections. Knows no MCP."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2

from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.upstream.connections import KeptConnections
from mcp_optimizer.upstream.spec import ServerSpec

CONNECT_TIMEOUT = 10.0
_IDLE = 3.0
"""Seconds an idle connection is kept: less than servers keep theirs (often 5), so the server does not close one at the
moment it is used.
"""


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
    if _is_proxied(httpx2.URL(spec.url)):
        kept = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_IDLE)
        return httpx2.AsyncClient(headers=headers, timeout=timeout, verify=_ssl_context(), limits=kept)
    transport = KeptConnections(_ssl_context, _IDLE, limits.answer_header_bytes)
    return httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport)


def _is_proxied(url: httpx2.URL) -> bool:
    return not getproxies().keys().isdisjoint({url.scheme, "all"}) and not proxy_bypass(url.host)
