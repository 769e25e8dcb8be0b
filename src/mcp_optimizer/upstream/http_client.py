"""The HTTP client with which one server is reached: its headers, its proxy, connections that are kept. No MCP."""

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
"""Seconds that an idle connection is kept: less than servers keep theirs (often 5), so that none is closed by the
server at the moment at which it is used."""


@cache
def _ssl_context() -> Any:
    # Building one costs about 40 ms; every HTTP upstream shares it.
    return httpx2.create_ssl_context()


def http_client(spec: ServerSpec, limits: Limits = DEFAULT_LIMITS) -> httpx2.AsyncClient:
    """A client for one server, through the proxy that the environment names for it, if any."""
    # No read timeout: a stream may be silent for hours, and each call has its own deadline.
    timeout = httpx2.Timeout(CONNECT_TIMEOUT, read=None)
    # The one encoding whose size `http_bodies` can bound.
    headers = {"accept-encoding": "gzip", **spec.headers}
    # How many calls may be under way is decided elsewhere, and streams stay open for hours: any number is opened.
    if _is_proxied(httpx2.URL(spec.url)):
        kept = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_IDLE)
        return httpx2.AsyncClient(headers=headers, timeout=timeout, verify=_ssl_context(), limits=kept)
    transport = KeptConnections(_ssl_context, _IDLE, limits.answer_header_bytes)
    return httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport)


def _is_proxied(url: httpx2.URL) -> bool:
    return not getproxies().keys().isdisjoint({url.scheme, "all"}) and not proxy_bypass(url.host)
