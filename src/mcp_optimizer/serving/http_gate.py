"""The gate in front of `/mcp`: reads request bodies within limits and passes only messages to the SDK.

An ASGI application around the SDK's own. Checks Host and Origin first, then asks the door who calls. A body must arrive
within a time and a size; an id of a request in progress cannot be used again in its session. Knows no tools.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from functools import partial

import mcp_types as types
import pydantic_core
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_optimizer.callers.door import Denied, Door
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.principal import ANYONE, Principal
from mcp_optimizer.gateway.turns import CallerTurns
from mcp_optimizer.relay.connected import PRINCIPAL_KEY, narrowed_by
from mcp_optimizer.relay.head import Fields, fields_of
from mcp_optimizer.serving.forwarded import FORWARDED_KEY
from mcp_optimizer.serving.forwarding import Forwarding
from mcp_optimizer.serving.gate import AT_ONCE, LARGE, PARAMS_KEY, Gate, Refused
from mcp_optimizer.serving.held_bodies import RETRY_AFTER
from mcp_optimizer.serving.hosts import Hosts
from mcp_optimizer.serving.http_lane import HttpLane
from mcp_optimizer.serving.last_requests import release_stream
from mcp_optimizer.serving.lasting_streams import LastingStreams
from mcp_optimizer.serving.outlines import outlined
from mcp_optimizer.serving.request_bodies import RequestBodies

_CLOSING = 1.0
"""Seconds for closing the stream of an answered request."""

_STATUS = {"size": 413, "slow": 408, "busy": 429, "full": 503}
"""By the reason of a refusal; any other reason is a bad request."""

_SESSION = MCP_SESSION_ID_HEADER.encode()
_LISTEN = "subscriptions/listen"
_UNKNOWN = 503
_DENIALS = {403: "scope", _UNKNOWN: "unverified"}
"""How those that the door turns away are counted, by status; any other is a matter of the credential."""

_READERS = 2
"""Large requests that are read at a time, each of another caller."""

_DRAINED = 1_000_000
"""Bytes of a body that are let in, unread, of somebody who is turned away."""


class HttpGate:
    """Turns bodies into messages."""

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        hosts: TransportSecuritySettings | None,
        door: Door | None = None,
        forwarding: Forwarding | None = None,
        lane: HttpLane | None = None,
    ) -> None:
        """Without a `door`, everybody is ANYONE. `forwarding`: to other gateways, if there can be some."""
        self._forwarding = forwarding
        self._lane = lane
        self._app = app
        self._gate = gate
        self._door = door
        self._streams = LastingStreams()
        self._hosts = Hosts(hosts)
        self._bodies = RequestBodies(gate)
        self._reading = CallerTurns("large requests", gate.limits.requests, _READERS)
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
        if principal.is_verified:
            # The SDK answers a request on a session that another user opened as if there were no such session.
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=principal.id, scopes=[]))
        if method == "POST":
            await self._post(request, fields, principal, scope, receive, send)
        else:
            await self._last(self._stream(request, scope, receive, _with_retry(send)), request, principal)

    async def _stream(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        others = self._forwarding
        if others is None or not await others.took_stream(self._resource(request), scope, receive, send):
            await self._app(scope, receive, send)

    async def _last(self, stream: Awaitable[None], request: Request, principal: Principal) -> None:
        """A stream that may last longer than its caller's credential, and is not waited for when the gateway stops."""
        release_stream(request.scope)
        if not principal.is_verified:
            await stream
            return

        async def is_admitted() -> bool:
            try:
                return (await self._caller(request)).id == principal.id
            except Denied as denied:
                # While nobody can say, nobody is sent away.
                return denied.status == _UNKNOWN

        await self._streams.run(stream, is_admitted)

    async def _caller(self, request: Request) -> Principal:
        if self._door is None:
            return ANYONE
        address = request.client.host if request.client is not None else ""
        return await self._door.admit(request.scope["headers"], self._resource(request), address)

    def _resource(self, request: Request) -> str:
        """The address that the client used, at whichever gateway its request arrived first."""
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
            if self._lane is not None and (call := self._lane.takes(request, message, fields)) is not None:
                body.clear()
                await call.respond(scope, receive, send)
                return
            answering = self._pass(message, body, scope, receive, _with_retry(send))
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

    async def _pass(self, message: JSONRPCMessage, body: bytearray, scope: Scope, receive: Receive, send: Send) -> None:
        params = message.params if isinstance(message, JSONRPCRequest) else None
        if isinstance(message, JSONRPCError):
            # An invalid answer may have been replaced.
            whole = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        elif params is not None and len(body) >= LARGE:
            scope[PARAMS_KEY] = params
            whole = pydantic_core.to_json({**message.model_dump(exclude={"params"}), "params": outlined(params)})
        else:
            whole = bytes(body)
        body.clear()
        waiting: list[Message] = [{"type": "http.request", "body": whole, "more_body": False}]
        del whole

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        try:
            await self._app(scope, replay, send)
        finally:
            scope.pop(PARAMS_KEY, None)


def resource_of(door: Door, request: Request) -> str:
    """The address of `/mcp` in a request whose Host was admitted."""
    _, port = request.scope.get("server") or ("", None)
    return door.resource(request.scope.get("scheme", "http"), request.headers.get("host", ""), port)


def _session_of(request: Request) -> str | None:
    """The session that a request names, among those of its caller: whether it is theirs, the SDK finds out later."""
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
    content = refused.as_message().model_dump_json(by_alias=True, exclude_unset=True)
    status = _STATUS.get(refused.reason, 400)
    return Response(content, status_code=status, headers=headers, media_type="application/json")


def _with_retry(send: Send) -> Send:
    """The SDK's response to too many sessions, with Retry-After."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 503:
            headers = [*message.get("headers", ()), (b"retry-after", str(RETRY_AFTER).encode())]
            message = {**message, "headers": headers}
        await send(message)

    return sent
