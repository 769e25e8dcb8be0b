"""The gate in front of `/mcp`: checks headers, reads request bodies within limits and passes only valid messages to
their era.

An ASGI application. Checks Host and Origin first, then asks the door to identify the caller. A body must arrive within
a time and a size; the id of a request in progress cannot be reused in its session. A long-lived stream ends when its
caller is no longer admitted: its key was revoked, or its token has expired. Knows no tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Protocol

import mcp_types as types
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, check_accept_headers
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_optimizer.access.callers.door import Denied, Door
from mcp_optimizer.domain.caller import ANYONE, Caller, Principal
from mcp_optimizer.gateway.caller_threads import CallerThreads
from mcp_optimizer.runtime.loop_timers import Deadline, SlowTimer
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.gate import AT_ONCE, Gate, Refused
from mcp_optimizer.serving.last_requests import release_stream
from mcp_optimizer.serving.messages import encoded
from mcp_optimizer.serving.peers import FORWARDED_KEY, Forwarding
from mcp_optimizer.serving.relay.connected import PRINCIPAL_KEY, narrowed_by
from mcp_optimizer.serving.relay.head import Fields, fields_of

logger = logging.getLogger(__name__)


# Reads request bodies: each within a time and a size, and all large ones together within a shared memory limit. One
# caller's bodies may take half of that.

WHOLE_KEY = "mcp_optimizer.whole"
"""The scope key that marks a request whose body has completely arrived."""

_MOMENT = 0.25
"""Seconds within which nearly every body arrives that is not there at once."""

_DISCARDING = 5.0
"""Seconds for reading and discarding the rest of a body that is too large."""


class RequestBodies:
    """Reads bodies within the limits of a gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._room = RoomForBodies(gate)
        self._moments = SlowTimer(min(_MOMENT, gate.limits.request_seconds / 2))

    def held(self, caller: str) -> HeldBody:
        """The room that a caller's body will take until it is released."""
        return HeldBody(self._room, caller)

    def read(self, scope: Scope, receive: Receive, held: HeldBody) -> Awaitable[bytearray | None]:
        """The complete body; None if the client left."""
        # Nearly always the whole body is there, and nothing has to wait.
        return self._received(receive, held) if WHOLE_KEY in scope else self._in_time(receive, held)

    async def _in_time(self, receive: Receive, held: HeldBody) -> bytearray | None:
        seconds = self._gate.limits.request_seconds
        try:
            with Deadline(seconds, self._moments):
                return await self._received(receive, held)
        except TimeoutError:
            text = f"The body of a request must arrive within {seconds:g} s."
            raise self._gate.refuse(Refused("slow", types.INVALID_REQUEST, text)) from None

    async def _received(self, receive: Receive, held: HeldBody) -> bytearray | None:
        most, body = self._gate.limits.request_bytes, bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > most:
                body.clear()
                await _discard(receive)
                text = f"A message may have {most:,} bytes."
                raise self._gate.refuse(Refused("size", types.INVALID_REQUEST, text))
            held.grow(len(body))
            if not message.get("more_body", False):
                return body


async def _discard(receive: Receive) -> None:
    """Read the rest of a body if that is quick: a client still sending when we close never sees our response."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARDING):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass


RETRY_AFTER = 1
"""Seconds after which a caller that was refused for lack of room should try again."""

_FREE = 16_000
"""Bytes of each body that are not counted, so that ordinary requests are always accepted."""

_AT_ONCE = 4
"""Bodies of the maximum size that may be read at the same time, half of them one caller's."""


class RoomForBodies:
    """The room that all bodies take together."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._held = 0
        self._held_by: Counter[str] = Counter()

    def hold(self, caller: str, more: int) -> None:
        """Reserve room for more bytes of a caller's large bodies."""
        most = _AT_ONCE * self._gate.limits.request_bytes
        if more > 0 and (self._held + more > most or self._held_by[caller] + more > most // 2):
            refused = Refused("full", types.INTERNAL_ERROR, "Too many large requests at a time. Try again shortly.")
            refused.retry_after = RETRY_AFTER
            raise self._gate.refuse(refused)
        self._held += more
        self._held_by[caller] += more
        if not self._held_by[caller]:
            del self._held_by[caller]


class HeldBody:
    """The part of the shared room that one body takes."""

    def __init__(self, room: RoomForBodies, caller: str) -> None:
        self._room = room
        self._caller = caller
        self._counted = 0

    def grow(self, size: int) -> None:
        if size > _FREE:
            counted = size - _FREE
            self._room.hold(self._caller, counted - self._counted)
            self._counted = counted

    def release(self) -> None:
        if self._counted:
            self._room.hold(self._caller, -self._counted)
            self._counted = 0


# Checks Host, Origin, Content-Type and Accept of requests with the SDK's rules. The check of Host and Origin prevents
# web pages from reaching a gateway on loopback. Nearly every request repeats the headers of an earlier one, so
# checked combinations are remembered.

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


_CLOSING = 1.0
"""Seconds for closing the stream of an answered request."""

_STATUS = {"size": 413, "slow": 408, "busy": 429, "full": 503}
"""HTTP status by the reason of a refusal; any other reason is a bad request."""

_SESSION = MCP_SESSION_ID_HEADER.encode()
_REVISION = MCP_PROTOCOL_VERSION_HEADER.encode()
_HANDSHAKE = frozenset({None, *map(str.encode, HANDSHAKE_PROTOCOL_VERSIONS)})
"""The legacy values of the revision header. The modern era reports errors in any other value."""
_LISTEN = "subscriptions/listen"
_UNKNOWN = 503
_DENIALS = {403: "scope", _UNKNOWN: "unverified"}
"""The reason under which a denial by the door is counted, by status; any other status concerns the credential."""

_READERS = 2
"""Large requests that are read at the same time, each of another caller."""

_DRAINED = 1_000_000
"""Maximum bytes of a refused caller's body, left unread, with which the connection stays open."""


class Era(Protocol):
    """Answers the clients of one era."""

    async def post(
        self, request: Request, message: JSONRPCMessage, fields: Fields, receive: Receive, send: Send
    ) -> None:
        """Handle an admitted message."""

    async def other(self, request: Request, receive: Receive, send: Send) -> None:
        """Handle a request with another method, which has no message."""


class HttpGate:
    """Reads messages from request bodies."""

    def __init__(
        self,
        legacy: Era,
        modern: Era,
        gate: Gate,
        hosts: TransportSecuritySettings | None,
        door: Door | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        """Without a `door`, every caller is ANYONE. `forwarding`: to other gateways, if there can be any."""
        self._forwarding = forwarding
        self._legacy = legacy
        self._modern = modern
        self._gate = gate
        self._door = door
        self._streams = LastingStreams()
        self._hosts = Hosts(hosts)
        self._bodies = RequestBodies(gate)
        self._reading = CallerThreads("large requests", gate.limits.requests, _READERS)
        self._under_way: dict[str, dict[str, asyncio.Event]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, method, fields = Request(scope), scope["method"], fields_of(scope)
        if not self._hosts.has_admitted(method, fields) and (refusal := await self._hosts.refusal(request)) is not None:
            await refusal(scope, receive, send)
            return
        if self._forwarding is not None and (told := await self._forwarding.arrived(request)) is not None:
            scope[FORWARDED_KEY] = told
        try:
            door = self._door
            is_anyone = door is None or door.asks_nothing_of(fields)
            principal = ANYONE if is_anyone else await self._caller(request)
        except Denied as denied:
            await self._turned_away(denied, request)(scope, receive, send)
            return
        scope[PRINCIPAL_KEY] = principal
        if method == "POST":
            await self._post(request, fields, principal, scope, receive, send)
        else:
            await self._last(self._stream(request, fields, scope, receive, send), request, principal)

    async def _stream(self, request: Request, fields: Fields, scope: Scope, receive: Receive, send: Send) -> None:
        others = self._forwarding
        if others is None or not await others.took_stream(self._resource(request), scope, receive, send):
            await self._era(fields).other(request, receive, send)

    def _era(self, fields: Fields) -> Era:
        return self._legacy if fields.get(_REVISION) in _HANDSHAKE else self._modern

    async def _last(self, stream: Awaitable[None], request: Request, principal: Principal) -> None:
        """Run a stream that may outlast its caller's credential; a stopping gateway does not wait for it."""
        release_stream(request.scope)
        if not principal.is_verified:
            await stream
            return

        async def is_admitted() -> bool:
            try:
                return (await self._caller(request)).id == principal.id
            except Denied as denied:
                # While the credential cannot be verified, no caller is disconnected.
                return denied.status == _UNKNOWN

        await self._streams.run(stream, is_admitted)

    async def _caller(self, request: Request) -> Principal:
        if self._door is None:
            return ANYONE
        address = request.client.host if request.client is not None else ""
        return await self._door.admit(request.scope["headers"], self._resource(request), address)

    def _resource(self, request: Request) -> str:
        """The address that the client used, at the gateway that its request reached first."""
        if (told := request.scope.get(FORWARDED_KEY)) is not None:
            return str(told.resource)
        return resource_of(self._door, request) if self._door is not None else ""

    def _turned_away(self, denied: Denied, request: Request) -> Response:
        self._gate.count(_DENIALS.get(denied.status, "credential"))
        if self._door is not None:
            self._door.note(denied)
        length = request.headers.get("content-length", "0" if request.method != "POST" else "")
        is_short = length.isdecimal() and len(length) < 12 and int(length) <= _DRAINED
        more = {} if is_short else {"Connection": "close"}
        return JSONResponse(denied.body, denied.status, {**denied.headers, **more})

    async def _post(
        self, request: Request, fields: Fields, principal: Principal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        held, session = self._bodies.held(principal.id), _session_of(request) if _SESSION in fields else None
        try:
            body = await self._bodies.read(scope, receive, held)
            if body is None:
                return
            if len(body) < AT_ONCE:
                message = self._gate.read_at_once(body)
            else:
                message = await self._gate.read(body, partial(self._reading.run, principal.id))
            if self._door is not None and principal.scopes is not None:
                asking = Caller(principal=principal, narrowed=narrowed_by(request))
                self._door.check_scopes(asking, message, self._resource(request))
            others = self._forwarding
            if others is not None and await self._is_elsewhere(others, request, message, body, scope, receive, send):
                return
            if session is not None:
                await self._admit(session, message)
        except Denied as denied:
            await self._turned_away(denied, request)(scope, receive, send)
            return
        except Refused as refused:
            await _answer(refused)(scope, receive, send)
            return
        finally:
            held.release()
        try:
            # The message has been parsed, and the body may be large.
            body.clear()
            answering = self._era(fields).post(request, message, fields, receive, send)
            lasts = isinstance(message, JSONRPCRequest) and message.method == _LISTEN
            await (self._last(answering, request, principal) if lasts else answering)
        finally:
            if session is not None:
                self._leave(session, message)

    async def _is_elsewhere(
        self,
        others: Forwarding,
        request: Request,
        message: JSONRPCMessage,
        body: bytearray,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> bool:
        """Whether another gateway answers this message."""
        resource, session = self._resource(request), _session_of(request)
        if session is not None and _cancelled(message) not in self._under_way.get(session, {}):
            others.tell_others(message, body, resource, scope)
        return await others.took(message, body, resource, scope, receive, send)

    async def _admit(self, session: str, message: JSONRPCMessage) -> None:
        if not isinstance(message, JSONRPCRequest):
            return
        number = str(message.id)
        if (before := self._under_way.get(session, {}).get(number)) is not None:
            # The client may have the response already while its stream is being closed.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(before.wait(), _CLOSING)
        under_way = self._under_way.setdefault(session, {})
        if number in under_way:
            text = "Another request with this id is still in progress."
            raise self._gate.refuse(Refused("duplicate", types.INVALID_REQUEST, text, message.id))
        if len(under_way) >= self._gate.limits.requests:
            text = (
                f"{len(under_way):,} requests of this session are in progress. Wait for responses before sending more."
            )
            refused = Refused("busy", types.INTERNAL_ERROR, text, message.id)
            refused.retry_after = RETRY_AFTER
            raise self._gate.refuse(refused)
        under_way[number] = asyncio.Event()

    def _leave(self, session: str, message: JSONRPCMessage) -> None:
        if not isinstance(message, JSONRPCRequest):
            return
        self._under_way[session].pop(str(message.id)).set()
        if not self._under_way[session]:
            del self._under_way[session]


def resource_of(door: Door, request: Request) -> str:
    """The address of `/mcp` in a request whose Host was admitted."""
    _, port = request.scope.get("server") or ("", None)
    return door.resource(request.scope.get("scheme", "http"), request.headers.get("host", ""), port)


def _session_of(request: Request) -> str | None:
    """A key for the session that a request names, scoped to its caller; whether it is theirs is checked later."""
    session = fields_of(request.scope).get(_SESSION)
    return None if session is None else f"{request.scope[PRINCIPAL_KEY].id}\n{session.decode('latin-1')}"


def _cancelled(message: JSONRPCMessage) -> str:
    """The id of the request that a notification cancels."""
    params = message.params if isinstance(message, JSONRPCNotification) else None
    return str((params or {}).get("requestId"))


def _answer(refused: Refused) -> Response:
    headers = {"Retry-After": str(refused.retry_after)} if refused.retry_after is not None else {}
    if refused.reason in ("size", "slow", "full"):
        # The rest of the body is not read.
        headers["Connection"] = "close"
    content = encoded(refused.as_message())
    status = _STATUS.get(refused.reason, 400)
    return Response(content, status_code=status, headers=headers, media_type="application/json")


_SECONDS = 5.0


class LastingStreams:
    """The streams of callers that had to prove their identity."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        """`seconds`: the interval between checks of a caller."""
        self._seconds = seconds
        self._watches = BackgroundTasks(logger, "Cannot look at the caller of a stream")

    async def run(self, stream: Awaitable[None], is_admitted: Callable[[], Awaitable[bool]]) -> None:
        """Run the stream until it ends or its caller's credential is no longer valid."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                watch = self._watches.spawn(self._watch(limit, is_admitted))
                try:
                    await stream
                finally:
                    watch.cancel()
        except TimeoutError:
            if not limit.expired():
                raise

    async def _watch(self, limit: asyncio.Timeout, is_admitted: Callable[[], Awaitable[bool]]) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            if not await is_admitted():
                limit.reschedule(asyncio.get_running_loop().time())
                return
