"""The other gateways of an installation: tracks which are alive, announces this one, and forwards requests that belong
to another.

Their addresses are kept in the database that they share. While it cannot be read, the last known gateways are used.
Forwarding is called by the gate over HTTP.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx2
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from mcp_optimizer.domain.gateways import PeerGateway
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.signatures import OwnedNames, Signatures, is_whole_name, owner_of_event, owner_of_question
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.relay.connected import ORPHANED_KEY, PRINCIPAL_KEY

if TYPE_CHECKING:
    from mcp_optimizer.db.gateways import GatewayRows

logger = logging.getLogger(__name__)

_BEAT = 10.0
"""Seconds between two heartbeats."""

_SILENT_MS = 45_000
"""Milliseconds without a heartbeat after which a gateway counts as gone."""

_PATIENCE = 1.0
_READ_AGAIN = 1.0
"""Minimum seconds between two reads, however many unknown gateways clients name."""

_LAST_WORDS = 2.0


class Peers:
    """The gateways on one database. `own`: the id of this one; `stored` returns the database once it is open."""

    def __init__(self, own: str, version: str, stored: Callable[[], Awaitable[GatewayRows | None]]) -> None:
        self.own = own
        self._version = version
        self._stored = stored
        self._known: Mapping[str, str] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._is_written = False
        self._tasks = BackgroundTasks(logger, "Other gateways are not told any more that this one lives")

    def join(self, address: str) -> None:
        """Announce this gateway and its address from now on."""
        one = PeerGateway(self.own, address, self._version, _now())
        self._tasks.spawn(self._beating(one), name="sign of life")

    async def leave(self) -> None:
        """Withdraw this gateway, because it stops."""
        await self._tasks.close()
        if not self._is_written:
            return
        try:
            async with asyncio.timeout(_LAST_WORDS):
                if (stored := await self._stored()) is not None:
                    await stored.leave(self.own)
        except (CatalogError, TimeoutError) as error:
            logger.debug("Other gateways were not told that this one stops: %s", error)

    async def address(self, gateway: str) -> str:
        """The address of a gateway; empty if it is not known to be alive."""
        if gateway not in self._known:
            await self._read()
        return self._known.get(gateway, "")

    async def others(self) -> Mapping[str, str]:
        """The addresses of all other gateways, by id."""
        await self._read()
        return {name: address for name, address in self._known.items() if name != self.own}

    async def _read(self) -> None:
        async with self._reading:
            if time.monotonic() - self._read_at < _READ_AGAIN:
                return
            self._read_at = time.monotonic()
            try:
                async with asyncio.timeout(_PATIENCE):
                    if (stored := await self._stored()) is not None:
                        living = await stored.living(_now() - _SILENT_MS)
                        self._known = {one.id: one.address for one in living}
            except (CatalogError, TimeoutError) as error:
                logger.debug("Other gateways cannot be read: %s", error)

    async def _beating(self, one: PeerGateway) -> None:
        while True:
            try:
                if (stored := await self._stored()) is not None:
                    await stored.seen(one, _now())
                    self._is_written = True
            except CatalogError as error:
                logger.debug("This gateway could not say that it lives: %s", error)
            await asyncio.sleep(_BEAT)


def _now() -> int:
    return time.time_ns() // 1_000_000


HEADER = "mcp-optimizer-forwarded"
FORWARDED_KEY = "mcp_optimizer.forwarded"
"""The scope key of a forwarded request for the other gateway's statement about it."""

_SECONDS = 60
"""Seconds that a request may be in transit; the clocks of two machines differ."""

_LONGEST = 8_000
_FORWARDED, _AS_GATEWAY = "forwarded", "gateway"

PROOF_PATH = "/gateway-proof"

_CONNECT = 1.0
_PROOF = 1.5
"""Seconds that a gateway has to prove its identity."""

_LOOK_AGAIN = 3.0
"""Seconds between two such proofs while an answer is awaited."""

_WRITE = 30.0
_LONGEST_PROOF = 1_000

_OF_CONNECTION = frozenset(
    f"connection keep-alive proxy-connection transfer-encoding te trailer upgrade expect content-length date server "
    f"{HEADER}".encode().split()
)
"""Headers that concern one connection, or that each gateway writes itself."""

_FAILURES = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, TimeoutError, ValueError)


@dataclass(frozen=True)
class Passed:
    """A request for another gateway."""

    method: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class PeerClient:
    """Reaches other gateways. Ignores proxy settings: the gateways are neighbours."""

    def __init__(self, headers: ForwardedHeaders) -> None:
        self._headers = headers
        self._client: httpx2.AsyncClient | None = None
        self._tasks = BackgroundTasks(logger, "A request could not be passed on", _FAILURES)

    async def close(self) -> None:
        await self._tasks.close()
        if self._client is not None:
            await self._client.aclose()

    async def is_there(self, gateway: str, address: str) -> bool:
        """Whether this gateway, in its current process, answers at this address now."""
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
        """Forward a request and pass its answer back, until its client leaves. False: the other gateway did not take
        it, and nothing was sent. `all_of`: any answer counts, not only acceptance of the message.
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
        """Forward a message that has no answer; whether it arrived is not reported."""
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
        """Returns when the other gateway no longer answers. It may hang with its connections open."""
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
        """Whether to pass this answer back. 503: the gateway stops. For a message with none, only acceptance counts."""
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
    """Returns when the client leaves; its body has already been read."""
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


@dataclass(frozen=True)
class Forwarded:
    """A request that another gateway passed on."""

    to: str
    principal: str
    """The id of the caller, as verified by the other gateway."""
    resource: str
    """The address that the client used, which its token is for."""
    digest: str
    """The digest of the body."""
    until: int

    def is_about(self, body: bytes | bytearray, principal: str) -> bool:
        return self.digest == digest(body) and self.principal == principal


def digest(body: bytes | bytearray) -> str:
    return hashlib.sha256(body).hexdigest()


class ForwardedHeaders:
    """Writes and reads the headers of forwarded requests, as the gateway `own`."""

    def __init__(self, own: str, signatures: Signatures, clock: Callable[[], float] = time.time) -> None:
        self.own = own
        self._signatures = signatures
        self._clock = clock

    async def written(self, to: str, principal: str, resource: str, body: bytes | bytearray) -> str:
        """The header for a request to another gateway."""
        told = Forwarded(to, principal, resource, digest(body), round(self._clock()) + _SECONDS)
        text = base64.urlsafe_b64encode(json.dumps(asdict(told)).encode()).decode().rstrip("=")
        return f"{text}.{await self._signatures.sign(_FORWARDED, text)}"

    async def read(self, header: str) -> Forwarded | None:
        """The statement in another gateway's header; None for an invalid header, which counts as missing."""
        text, _, signature = header.rpartition(".")
        if len(header) > _LONGEST or not await self._signatures.is_ours(_FORWARDED, text, signature):
            return None
        try:
            told = Forwarded(**json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))
        except (binascii.Error, ValueError, TypeError):
            # Written by a version with other fields.
            return None
        return told if told.to == self.own and told.until > self._clock() else None

    async def proof(self, asked: str, gateway: str) -> str:
        """The answer to a random challenge that only this gateway, or another one on the same database, can give."""
        return await self._signatures.sign(_AS_GATEWAY, f"{gateway}\0{asked}")

    async def is_proof(self, answer: object, asked: str, gateway: str) -> bool:
        text = f"{gateway}\0{asked}"
        return isinstance(answer, str) and await self._signatures.is_ours(_AS_GATEWAY, text, answer)


# Forwards requests that belong to another gateway of the installation. A modern client's answers go to the gateway
# where its call waits, by the signed state that the client carries; a legacy client's, to the gateway that asked, by
# the question's id; a lost stream continues where it began, by the event's id. A cancellation names no gateway, so it
# goes to all of them. A forwarded request is never forwarded again; one that cannot be forwarded is answered here:
# the call is gone.

LAST_EVENT_ID: Final = "last-event-id"

_MOST = 256
"""Maximum number of requests being forwarded at a time."""

_MOST_TOLD = 64
"""Maximum number of cancellations being forwarded; more are dropped."""

_LONGEST_QUESTION = 100
_BUSY = "Too many requests are being passed on to other gateways. Try again shortly."
_NOT_THIS = "This is not the request that another gateway passed on."


class Forwarding:
    """Forwards requests between this gateway and the others."""

    def __init__(self, peers: Peers, names: OwnedNames, signatures: Signatures) -> None:
        self._peers = peers
        self._names = names
        self._headers = ForwardedHeaders(peers.own, signatures)
        self._client = PeerClient(self._headers)
        self._under_way = 0
        self._telling = BackgroundTasks(logger, "A cancellation was not passed on")

    @property
    def own(self) -> str:
        """The id of this gateway."""
        return self._peers.own

    def routes(self) -> list[Route]:
        """The route where another gateway verifies that it reached this one."""
        return [Route(PROOF_PATH, self._prove)]

    async def close(self) -> None:
        await self._telling.close()
        await self._client.close()

    async def _prove(self, request: Request) -> Response:
        asked = request.query_params.get("ask", "")
        if not asked or len(asked) > _LONGEST_QUESTION:
            return PlainTextResponse("Ask something.", status_code=400)
        return PlainTextResponse(await self._headers.proof(asked, self.own))

    async def arrived(self, request: Request) -> Forwarded | None:
        """The other gateway's statement about this request, if one forwarded it."""
        header = request.headers.get(HEADER)
        return await self._headers.read(header) if header is not None else None

    async def took(
        self, message: JSONRPCMessage, body: bytearray, resource: str, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Whether the message was answered here, by forwarding or refusing it."""
        told, principal = scope.get(FORWARDED_KEY), scope[PRINCIPAL_KEY].id
        if told is not None:
            if told.is_about(body, principal):
                return False
            await JSONResponse({"error": _NOT_THIS}, status_code=400)(scope, receive, send)
            return True
        owner = await self._owner(message, principal)
        if not owner or owner == self.own:
            return False
        is_request = isinstance(message, JSONRPCRequest)
        took = await self._pass_on(owner, bytes(body), resource, scope, receive, send, all_of=is_request)
        if not took and isinstance(message, JSONRPCRequest) and is_whole_name((message.params or {})["requestState"]):
            scope[ORPHANED_KEY] = True
        return took

    async def took_stream(self, resource: str, scope: Scope, receive: Receive, send: Send) -> bool:
        """Whether a lost stream is continued by the gateway where it began."""
        owner = owner_of_event(Request(scope).headers.get(LAST_EVENT_ID, ""))
        if scope["method"] != "GET" or FORWARDED_KEY in scope or not owner or owner == self.own:
            return False
        return await self._pass_on(owner, b"", resource, scope, receive, send, all_of=False)

    def tell_others(self, message: JSONRPCMessage, body: bytearray, resource: str, scope: Scope) -> None:
        """Forward a legacy client's cancellation of a request that is not in progress here to all other gateways."""
        is_cancel = isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled"
        if is_cancel and FORWARDED_KEY not in scope and len(self._telling) < _MOST_TOLD:
            self._telling.spawn(self._tell(_passed(scope, bytes(body)), resource, scope[PRINCIPAL_KEY].id))

    async def _tell(self, request: Passed, resource: str, principal: str) -> None:
        async def tell(gateway: str, address: str) -> None:
            header = await self._headers.written(gateway, principal, resource, request.body)
            await self._client.tell(gateway, address, request, header)

        await asyncio.gather(*(tell(gateway, address) for gateway, address in (await self._peers.others()).items()))

    async def _owner(self, message: JSONRPCMessage, principal: str) -> str:
        if isinstance(message, JSONRPCRequest):
            return await self._names.owner_of_call((message.params or {}).get("requestState"), principal)
        return owner_of_question(message.id) if isinstance(message, JSONRPCResponse | JSONRPCError) else ""

    async def _pass_on(
        self, owner: str, body: bytes, resource: str, scope: Scope, receive: Receive, send: Send, *, all_of: bool
    ) -> bool:
        address = await self._peers.address(owner)
        if not address or not await self._client.is_there(owner, address):
            return False
        if self._under_way >= _MOST:
            await JSONResponse({"error": _BUSY}, status_code=503, headers={"retry-after": "1"})(scope, receive, send)
            return True
        self._under_way += 1
        try:
            header = await self._headers.written(owner, scope[PRINCIPAL_KEY].id, resource, body)
            request = _passed(scope, body)
            return await self._client.carry(owner, address, request, header, receive, send, all_of=all_of)
        finally:
            self._under_way -= 1


def _passed(scope: Scope, body: bytes) -> Passed:
    return Passed(scope["method"], scope.get("query_string", b""), scope["headers"], body)
