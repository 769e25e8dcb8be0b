"""Other HTTP clients in the place of the gateway's own, for a comparison.

Started by `http_pool`, with the name of a client and the arguments of a gateway, which then reaches its servers with
that client. Knows no MCP.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from types import ModuleType
from typing import Any

import httpx2

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.upstream.transports import http_client as ours
from mcp_optimizer.upstream.transports.connections import ArrivingBody, KeptConnections
from mcp_optimizer.upstream.transports.http_client import ServerClient

OURS, HTTPX, AIOHTTP = "ours", "httpx's own", "aiohttp"


class AiohttpClient(ServerClient):
    """As ours, with aiohttp below: its connections, its parser and its way to write a request."""

    def __init__(self, headers: Mapping[str, str], limits: Limits) -> None:
        super().__init__(headers, KeptConnections(httpx2.create_ssl_context, 3.0))
        self._aiohttp = importlib.import_module("aiohttp")
        self._own = dict(headers)
        self._most = limits.answer_header_bytes
        self._session: Any = None

    async def exchange(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        session = self._session or self._opened()
        try:
            response = await session.request(
                method, str(url), headers={**self._own, **headers}, data=content, allow_redirects=False
            )
        except self._aiohttp.ClientConnectorError as error:
            raise httpx2.ConnectError(str(error)) from error
        except self._aiohttp.ClientError as error:
            raise httpx2.RemoteProtocolError(str(error)) from error

        def free(_connection: object, needs_rest: bool) -> None:
            # A response that ends gives its connection back by itself.
            if needs_rest or response.content.is_eof():
                response.close()
            else:
                asyncio.get_running_loop().call_later(0.25, response.close)

        source: Any = _AiohttpBody(response.content)
        return httpx2.Response(response.status, headers=list(response.raw_headers), stream=ArrivingBody(source, free))

    def _opened(self) -> Any:
        module = self._aiohttp
        connector = module.TCPConnector(limit=0, keepalive_timeout=3.0)
        timeout = module.ClientTimeout(total=None, sock_connect=10)
        self._session = module.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, max_field_size=self._most
        )
        return self._session

    async def __aexit__(self, *error: Any) -> None:
        await super().__aexit__(*error)
        if self._session is not None:
            await self._session.close()


class _AiohttpBody:
    """What aiohttp has received of a body."""

    def __init__(self, content: Any) -> None:
        self._content = content

    async def body(self) -> AsyncIterator[bytes]:
        async for chunk in self._content.iter_any():
            yield chunk

    def whole_body(self) -> bytes | None:
        return self._content.read_nowait() if self._content.is_eof() else None


def _with_aiohttp(spec: ServerSpec, limits: Limits = DEFAULT_LIMITS) -> ServerClient:
    return AiohttpClient({"accept-encoding": "gzip", **spec.headers}, limits)


def _use(made: Callable[[ServerSpec, Limits], ServerClient]) -> None:
    """Put it in the place of ours, wherever that was imported; fails if it is no longer there."""
    for name in ("streamable_http", "legacy_sse"):
        module: ModuleType = importlib.import_module(f"mcp_optimizer.upstream.{name}")
        assert vars(module)["http_client"] is ours.http_client
        vars(module)["http_client"] = made


def main() -> None:
    client = sys.argv.pop(1)
    if client == AIOHTTP:
        _use(_with_aiohttp)
    elif client == HTTPX:
        # As through a proxy.
        assert "is_proxied_address" in vars(ours)
        vars(ours)["is_proxied_address"] = lambda _url: True
    from mcp_optimizer.cli import main as start

    start()


if __name__ == "__main__":
    main()
