"""HTTP requests to one server, with headers that tell it who calls. Knows no MCP, and nothing of logins.

A request that is refused for its headers was not carried out, so it is sent again if there are other headers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2

from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.upstream.authorization import Authorization
from mcp_optimizer.upstream.endings import ExchangeLost
from mcp_optimizer.upstream.http_client import KeptClient

_REFUSALS = (401, 403)
_MOST_ATTEMPTS = 3


class AuthorizedHttp:
    """A client, and what its server wants to know."""

    def __init__(self, client: httpx2.AsyncClient, authorization: Authorization | None) -> None:
        self._client = client
        self._authorization = authorization

    async def send(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes | None = None
    ) -> httpx2.Response:
        """The response, not yet read, which the caller closes."""
        attempts = 0
        while True:
            attempts += 1
            own = await self._headers()
            response = await self._exchange(method, url, {**headers, **own}, content)
            if response.status_code not in _REFUSALS or self._authorization is None or attempts == _MOST_ATTEMPTS:
                return response
            try:
                is_worth_it = await self._other_headers(self._authorization, response, own)
            except BaseException:
                await response.aclose()
                raise
            if not is_worth_it:
                return response
            await response.aclose()

    async def _exchange(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        if isinstance(self._client, KeptClient):
            return await self._client.exchange(method, url, headers, content)
        request = self._client.build_request(method, url, content=content, headers=headers)
        return await self._client.send(request, stream=True)

    @asynccontextmanager
    async def stream(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """The response, closed at the end."""
        response = await self.send(method, url, headers, content)
        try:
            yield response
        finally:
            await response.aclose()

    async def _headers(self) -> Mapping[str, str]:
        if self._authorization is None:
            return {}
        try:
            return await self._authorization.headers()
        except OptimizerError as failure:
            raise ExchangeLost(str(failure), was_sent=False) from None

    async def _other_headers(
        self, authorization: Authorization, response: httpx2.Response, sent: Mapping[str, str]
    ) -> bool:
        # Several headers of this name are one list.
        challenges = response.headers.get("www-authenticate", "")
        try:
            return await authorization.refused(response.status_code, challenges, sent)
        except OptimizerError as failure:
            raise ExchangeLost(str(failure), was_sent=False) from None
