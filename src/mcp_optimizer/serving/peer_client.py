"""Passes a request on to another gateway, and its answer back, piece by piece.

First the other one has to prove that it is the gateway that is meant: a caller's credential goes to nobody else. One
that does not answer any more, for whatever reason, is given up within seconds. Knows headers, no messages.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
from starlette.types import Message, Receive, Send

from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.forwarded import HEADER, ForwardedHeaders

logger = logging.getLogger(__name__)

PROOF_PATH = "/gateway-proof"

_CONNECT = 1.0
_PROOF = 1.5
"""Seconds until a gateway has proved who it is."""

_LOOK_AGAIN = 3.0
"""Seconds between two such proofs while an answer is waited for."""

_WRITE = 30.0
_LONGEST_PROOF = 1_000

_OF_CONNECTION = frozenset(
    f"connection keep-alive proxy-connection transfer-encoding te trailer upgrade expect content-length date server "
    f"{HEADER}".encode().split()
)
"""Headers that are about one connection, or that each gateway writes itself."""

_FAILURES = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, TimeoutError, ValueError)


@dataclass(frozen=True)
class Passed:
    """A request for another gateway."""

    method: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class PeerClient:
    """Reaches other gateways. Nobody's proxy settings apply: they are neighbours."""

    def __init__(self, headers: ForwardedHeaders) -> None:
        self._headers = headers
        self._client: httpx2.AsyncClient | None = None
        self._tasks = BackgroundTasks(logger, "A request could not be passed on", _FAILURES)

    async def close(self) -> None:
        await self._tasks.close()
        if self._client is not None:
            await self._client.aclose()

    async def is_there(self, gateway: str, address: str) -> bool:
        """Whether this gateway, in this life, answers at this address now."""
        asked = secrets.token_urlsafe(16)
        try:
            async with (
                asyncio.timeout(_PROOF),
                self._http().stream("GET", f"{address}{PROOF_PATH}", params={"ask": asked}) as response,
            ):
                said = b"".join([piece async for piece in _bounded(response)]).decode()
        except _FAILURES:
            return False
        return await self._headers.is_proof(said, asked, gateway)

    async def carry(
        self, gateway: str, address: str, request: Passed, header: str, receive: Receive, send: Send, *, all_of: bool
    ) -> bool:
        """Pass a request on and its answer back, until its client leaves. False: the other gateway did not take it,
        and nothing was sent. `all_of`: any answer counts, and not only that the message was accepted.
        """
        answer = _Answer(send, all_of=all_of)
        carrying = self._tasks.spawn(self._exchange(address, request, header, answer))
        others = {self._tasks.spawn(_left(receive)), self._tasks.spawn(self._until_silent(gateway, address))}
        try:
            await asyncio.wait({carrying, *others}, return_when=asyncio.FIRST_COMPLETED)
            client_left = any(task.done() and task.result() == "left" for task in others)
        finally:
            for task in (carrying, *others):
                task.cancel()
            await asyncio.wait({carrying, *others})
        return answer.has_begun or client_left

    async def tell(self, gateway: str, address: str, request: Passed, header: str) -> None:
        """Pass on what has no answer; nobody is told whether it arrived."""
        if await self.is_there(gateway, address):
            try:
                async with asyncio.timeout(_WRITE), self._sent(address, request, header):
                    pass
            except _FAILURES as error:
                logger.debug("Another gateway did not take a notification: %s", type(error).__name__)

    async def _exchange(self, address: str, request: Passed, header: str, answer: _Answer) -> None:
        async with self._sent(address, request, header) as response:
            if not answer.takes(response.status_code):
                return
            await answer.begin(response.status_code, _between(response.headers.raw))
            async for piece in response.aiter_raw():
                await answer.more(piece)
            await answer.end()

    def _sent(self, address: str, request: Passed, header: str) -> Any:
        return self._http().stream(
            request.method,
            f"{address}/mcp" + (f"?{request.query.decode('ascii', 'replace')}" if request.query else ""),
            headers=[*_between(request.headers), (HEADER.encode(), header.encode())],
            content=request.body or None,
        )

    async def _until_silent(self, gateway: str, address: str) -> str:
        """Returns when the other gateway does not answer any more. It may be stopped, with its connections open."""
        while True:
            await asyncio.sleep(_LOOK_AGAIN)
            if not await self.is_there(gateway, address) and not await self.is_there(gateway, address):
                return "silent"

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            timeout = httpx2.Timeout(connect=_CONNECT, read=None, write=_WRITE, pool=_CONNECT)
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30)
            self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, trust_env=False, follow_redirects=False)
        return self._client


class _Answer:
    """The answer to a client, as far as it was passed back."""

    def __init__(self, send: Send, *, all_of: bool) -> None:
        self._send = send
        self._all_of = all_of
        self.has_begun = False

    def takes(self, status: int) -> bool:
        """503: it stops. Of what has no answer of its own, only that it was accepted is worth telling."""
        return status != 503 if self._all_of else status < 300

    async def begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def more(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _between(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers if name.lower() not in _OF_CONNECTION]


async def _left(receive: Receive) -> str:
    """Returns when the client leaves; its whole body was read."""
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
    return "left"


async def _bounded(response: httpx2.Response) -> AsyncIterator[bytes]:
    size = 0
    async for piece in response.aiter_raw():
        size += len(piece)
        if size > _LONGEST_PROOF:
            raise ValueError("too long for a proof")
        yield piece
