"""Legacy sessions over HTTP: any gateway of an installation opens a session that it does not know from its id.

The id tells what the client said when it began (`session_ids.py`), so the handshake is made again, here, without the
client. What a session was told in between is not in its id: subscriptions, the log level, streams that were open.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from mcp_optimizer.callers.door import Door
from mcp_optimizer.domain.principal import ANYONE, Principal
from mcp_optimizer.relay.connected import PRINCIPAL_KEY, is_http
from mcp_optimizer.relay.sdk_internals import OpenSessionManager
from mcp_optimizer.relay.sdk_streams import OpenTransport
from mcp_optimizer.runtime.owned_names import new_owner
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.ended_sessions import EndedSessions
from mcp_optimizer.serving.event_store import KeptEvents, SessionEvents
from mcp_optimizer.serving.forwarded import FORWARDED_KEY
from mcp_optimizer.serving.forwarding import LAST_EVENT_ID, Forwarding
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.http_gate import HttpGate
from mcp_optimizer.serving.http_lane import AT_ONCE_KEY, HttpLane
from mcp_optimizer.serving.large_bodies import leave_large
from mcp_optimizer.serving.modern_lane import ModernLane
from mcp_optimizer.serving.session_ids import Introduction, SessionIds

logger = logging.getLogger(__name__)

_RETRY_MS = 1_000
"""Milliseconds after which a client that lost a stream should ask for the rest."""

_NOT_FOUND = "Session not found"
"""As the SDK says it of a session that is open here and another caller's: nobody learns which ids are good."""
_ELSEWHERE = (
    "This stream cannot be continued: the gateway that sent it has ended, or cannot be reached by the other ones. Call "
    "again what was not answered."
)
_FULL = "Too many open sessions"
_UNREADABLE = "This session began at another gateway, which cannot be verified until the database answers. Try again."


class Sessions(OpenSessionManager[SessionEvents]):
    """The SDK's sessions behind the gate, with resumable streams, and with ids that other gateways can read."""

    def __init__(
        self,
        server: Server[Any],
        *,
        gate: Gate,
        hosts: TransportSecuritySettings,
        door: Door | None = None,
        signatures: Signatures | None = None,
        ended: EndedSessions | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        limits = gate.limits
        lane = HttpLane(self, ModernLane(self.answer_call, server.get_tool_input_schema))
        super().__init__(
            server,
            gate=lambda app: HttpGate(app, gate, hosts, door, forwarding, lane),
            max_sessions=limits.sessions,
            security_settings=hosts,
            retry_interval=_RETRY_MS,
        )
        self._ids = SessionIds(signatures or Signatures())
        self._ended = ended or EndedSessions()
        self._ended.over(self.open_sessions, self._end)
        self._ending = BackgroundTasks(logger, "A session that its client ended elsewhere is still open")
        self._ending_here: set[str] = set()
        self._most_of_hello = limits.introduction_bytes
        self._opening: dict[str, asyncio.Event] = {}
        mark = forwarding.own if forwarding is not None else new_owner()
        self._events = KeptEvents(size=limits.kept_events, mark=mark)
        self._of_session: WeakValueDictionary[str | None, SessionEvents] = WeakValueDictionary()

    def _end(self, is_ended: Callable[[str], bool]) -> None:
        """Another gateway got the end of sessions."""
        for session in self.open_sessions():
            if session not in self._ending_here and is_ended(session):
                self._ending.spawn(self.discard(session))

    def new_events(self) -> SessionEvents:
        return self._events.of_session()

    def admitted(self, session: str | None, events: SessionEvents) -> None:
        self._of_session[session] = events

    async def begin(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request without a session: with `initialize` one begins, under an id that tells what it said."""
        if scope["method"] != "POST":
            await self.serve_session("", scope, receive, send)
            return
        first = await receive()
        said = self._introduction(first)
        name = await self._ids.new(said, _principal(scope).id) if said is not None else ""
        await self.serve_session(name, scope, _again([first], receive), send)

    async def go_on(self, session: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A request on a session, which is opened if it is not known here."""
        refusal = await self._refused(session, scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if scope["method"] != "DELETE" or await self._ids.read(session, _principal(scope).id) is None:
            await self.serve_session(session, scope, receive, send)
            return
        self._ending_here.add(session)
        try:
            await self._ended.add(session)
            await self.serve_session(session, scope, receive, send)
        finally:
            self._ending_here.discard(session)

    async def around(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """A middleware of the MCP server: sessions that begin are known to the lane, and large values bypass the SDK
        and cannot be sent again.
        """
        if ctx.method == "initialize":
            self.remember(ctx)
        result, request = await call_next(ctx), ctx.request
        if not isinstance(result, dict) or not is_http(request):
            return result
        sent = leave_large(request, result)
        if sent is not result and AT_ONCE_KEY not in request.scope:
            events = self._of_session.get(request.headers.get(MCP_SESSION_ID_HEADER))
            if events is not None:
                events.leave_out(str(ctx.request_id))
        return sent

    def is_opened_again(self, session: str) -> bool:
        return session in self._opening

    def session_of(self, request: Request) -> OpenTransport | None:
        session = request.headers.get(MCP_SESSION_ID_HEADER)
        return self.use_session(session, request.scope) if session and session not in self._opening else None

    def first_event(self, session: str, stream: str) -> str:
        return self._of_session[session].open_stream(stream)

    def _introduction(self, message: Message) -> Introduction | None:
        """What an `initialize` says; None for any other request. The gate passes on each body in one piece."""
        body = message.get("body", b"")
        if b"initialize" not in body or len(body) > self._most_of_hello:
            return None
        with suppress(ValueError):
            read = json.loads(body)
            if isinstance(read, Mapping) and read.get("method") == "initialize" and "id" in read:
                params = read.get("params")
                return Introduction.of(params if isinstance(params, Mapping) else {})
        return None

    async def _refused(self, session: str, scope: Scope) -> JSONResponse | None:
        if (opening := self._opening.get(session)) is not None:
            await opening.wait()
        if not self.has_session(session) and (refusal := await self._open_again(session, scope)) is not None:
            return refusal
        last = Request(scope).headers.get(LAST_EVENT_ID)
        if last is not None and self._events.is_elsewhere(last):
            return _refusal(409, INVALID_REQUEST, _ELSEWHERE)
        return None

    async def _open_again(self, session: str, scope: Scope) -> JSONResponse | None:
        """Open a session that began at another gateway, or here in another life; why not, if that cannot be."""
        said = await self._ids.read(session, _principal(scope).id)
        if said is None and self._ids.is_unreadable_now(session):
            return _refusal(503, INTERNAL_ERROR, _UNREADABLE)
        # What another gateway passed on is about something that began here, if anywhere.
        if said is None or FORWARDED_KEY in scope or await self._ended.has(session):
            return _refusal(404, INVALID_REQUEST, _NOT_FOUND)
        if (other := self._opening.get(session)) is not None:
            await other.wait()
            return None
        done = self._opening[session] = asyncio.Event()
        try:
            await self._shake_hands(session, said, scope)
        finally:
            del self._opening[session]
            done.set()
        return None if self.has_session(session) else _refusal(503, INTERNAL_ERROR, _FULL)

    async def _shake_hands(self, session: str, said: Introduction, scope: Scope) -> None:
        """The handshake once more, as the client made it; the answers are for nobody."""
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": said.params}
        await self.serve_session(session, *_posted(scope, hello, said.revision))
        if self.has_session(session):
            done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self.serve_session(session, *_posted(scope, done, said.revision, session))


def _principal(scope: Scope) -> Principal:
    found = scope.get(PRINCIPAL_KEY)
    return found if isinstance(found, Principal) else ANYONE


def _refusal(status: int, code: int, text: str) -> JSONResponse:
    # The gate adds Retry-After.
    error = {"code": code, "message": text}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status_code=status)


def _posted(
    scope: Scope, message: Mapping[str, Any], revision: str, session: str | None = None
) -> tuple[Scope, Receive, Send]:
    """A request like the one in progress, of the same caller, with another message, and nobody who waits for it."""
    kept = [(name, value) for name, value in scope["headers"] if name in (b"host", b"origin")]
    ours = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        MCP_PROTOCOL_VERSION_HEADER: revision,
        **({} if session is None else {MCP_SESSION_ID_HEADER: session}),
    }
    headers = [*kept, *((name.encode(), value.encode()) for name, value in ours.items())]
    body: Message = {"type": "http.request", "body": json.dumps(message).encode(), "more_body": False}

    async def silent() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("never")

    async def unheard(_message: Message) -> None:
        return

    return {**scope, "method": "POST", "headers": headers}, _again([body], silent), unheard


def _again(read: Iterable[Message], receive: Receive) -> Receive:
    waiting = iter(read)

    async def next_message() -> Message:
        return next(waiting, None) or await receive()

    return next_message
