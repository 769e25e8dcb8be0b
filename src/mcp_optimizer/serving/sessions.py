"""The legacy sessions over HTTP: their owners, number and ends, and which request belongs to which.

Any gateway of an installation can open an unknown session from its id, which contains the client's introduction
(`session_ids.py`): the handshake is repeated here, without the client. The id does not contain later state:
subscriptions, the log level, open streams. Called by the gate.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import DEFAULT_NEGOTIATED_VERSION, INTERNAL_ERROR, JSONRPCMessage, JSONRPCRequest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_optimizer.domain.caller import ANYONE, Principal
from mcp_optimizer.limits import Limits
from mcp_optimizer.runtime.loop_timers import SlowTimer
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.http_gate import accepts, is_json
from mcp_optimizer.serving.http_responses import refusal
from mcp_optimizer.serving.legacy_http import KeptEvents, Session
from mcp_optimizer.serving.peers import FORWARDED_KEY, LAST_EVENT_ID
from mcp_optimizer.serving.relay.connected import PRINCIPAL_KEY
from mcp_optimizer.serving.relay.head import Fields, fields_of
from mcp_optimizer.serving.session_ids import EndedSessions, Introduction, SessionIds

logger = logging.getLogger(__name__)

_MOMENT = 0.25
"""Seconds, at most twice as many, after which a request becomes a stream, which its client can resume."""
_UNUSED = 60.0
"""Seconds after which an unused session ends: its client left before it received the session."""
_IDLE = 30 * 60.0
"""Seconds without use and without an open stream after which a session ends."""
_LOOKS = 30.0
"""Seconds between two checks for idle sessions."""

_SESSION = MCP_SESSION_ID_HEADER.encode()
_REVISION = MCP_PROTOCOL_VERSION_HEADER.encode()
_EVENT = LAST_EVENT_ID.encode()

_NOT_FOUND = "Session not found"
"""Also the response for a session of another caller that is open here, so that no caller learns which ids are valid."""
_ELSEWHERE = (
    "This stream cannot be continued: the gateway that sent it has ended, or cannot be reached by the other ones. Call "
    "again what was not answered."
)
_FULL = "Too many open sessions"
_UNREADABLE = "This session began at another gateway, which cannot be verified until the database answers. Try again."
_MISSING = "Bad Request: Missing session ID"
_ONE_STREAM = "Conflict: Only one SSE stream is allowed per session"
_NOT_ALLOWED = "Method Not Allowed"
_BOTH = "Not Acceptable: Client must accept both application/json and text/event-stream"
_STREAMS = "Not Acceptable: Client must accept text/event-stream"
_NO_JSON = "Unsupported Media Type: Content-Type must be application/json"


class Sessions:
    """The sessions that are open here, least recently used first."""

    def __init__(
        self,
        server: Server[Any],
        limits: Limits,
        signatures: Signatures | None = None,
        ended: EndedSessions | None = None,
        mark: str = "",
        unused: float = _UNUSED,
        idle: float = _IDLE,
    ) -> None:
        """`mark`: the prefix of event ids, where other gateways number events too. `unused` and `idle`: seconds."""
        self._server = server
        self._lifespan: Any = None
        self._most = limits.sessions
        self._unused = unused
        self._idle = idle
        self._ids = SessionIds(signatures or Signatures())
        self._ended = ended or EndedSessions()
        self._ended.over(lambda: list(self._open), self._end_elsewhere)
        self._events = KeptEvents(size=limits.kept_events, mark=mark)
        self._moments = SlowTimer(_MOMENT)
        self._open: dict[str, Session] = {}
        self._opening: dict[str, asyncio.Event] = {}
        self._ending_here: set[str] = set()
        self._tasks = BackgroundTasks(logger, "A session that has ended is still open")
        self._looks = BackgroundTasks(logger, "Idle sessions are not ended")

    def __len__(self) -> int:
        return len(self._open)

    def has_session(self, session: str) -> bool:
        return session in self._open

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self._most

    async def discard(self, name: str) -> None:
        """End a session, with its streams, if it is open."""
        if (session := self._open.get(name)) is not None:
            self._discard(session)

    def start(self, lifespan: Any) -> None:
        self._lifespan = lifespan
        self._looks.spawn(self._end_idle())

    async def close(self) -> None:
        """End all sessions, with their requests in progress."""
        await self._looks.close()
        for session in list(self._open.values()):
            self._discard(session)
        await self._tasks.settled()

    # Requests.

    async def post(
        self, request: Request, message: JSONRPCMessage, fields: Fields, receive: Receive, send: Send
    ) -> None:
        """Handle a message of a session, or the one that begins a session."""
        if (found := await self._found(request, fields)) is None and _SESSION not in fields:
            await self._begin(request, message, fields, receive, send)
        elif isinstance(found, Response):
            await found(request.scope, receive, send)
        elif found is not None:
            with found:
                await self._answer(found, request, message, fields, receive, send)

    async def other(self, request: Request, receive: Receive, send: Send) -> None:
        """Open or resume a stream, or end a session."""
        fields, method = fields_of(request.scope), request.method
        if method not in ("GET", "DELETE"):
            response: Response | None = refusal(405, _NOT_ALLOWED, headers={"Allow": "GET, POST, DELETE"})
        elif method == "GET" and not accepts(fields)[1]:
            response = refusal(406, _STREAMS)
        elif _SESSION not in fields:
            response = refusal(400, _MISSING)
        elif method == "DELETE":
            response = await self._delete(request, fields)
        else:
            found = await self._found(request, fields)
            response = await self._stream(found, fields, receive, send) if isinstance(found, Session) else found
        if response is not None:
            await response(request.scope, receive, send)

    async def _answer(
        self, session: Session, request: Request, message: JSONRPCMessage, fields: Fields, receive: Receive, send: Send
    ) -> None:
        if (refused := _unacceptable(fields)) is not None:
            await refused(request.scope, receive, send)
            return
        session.use()
        if isinstance(message, JSONRPCRequest):
            await session.answer(request, message, _revision(message, fields), receive, send)
            return
        # Handled before its client is informed and sends messages that must come after it.
        session.take(message, request)
        await Response(status_code=202, headers=_named(session))(request.scope, receive, send)

    async def _begin(
        self, request: Request, message: JSONRPCMessage, fields: Fields, receive: Receive, send: Send
    ) -> None:
        """Begin a session with `initialize`, under an id that contains the client's introduction."""
        session: Session | None = None
        if (refused := _unacceptable(fields)) is None:
            is_hello = isinstance(message, JSONRPCRequest) and message.method == "initialize"
            name = await self._new_name(message, _principal(request.scope)) if is_hello else ""
            session = self._admitted(name, request.scope) if is_hello else None
            refused = None if session is not None else _full() if is_hello else refusal(400, _MISSING)
        if refused is not None or session is None or not isinstance(message, JSONRPCRequest):
            await (refused or refusal(400, _MISSING))(request.scope, receive, send)
            return
        try:
            with session:
                await session.answer(request, message, _revision(message, fields), receive, send)
        finally:
            if session.has_shaken_hands:
                asyncio.get_running_loop().call_later(self._unused, self._end_unused, session)
            else:
                self._discard(session)

    async def _new_name(self, hello: JSONRPCMessage, principal: Principal) -> str:
        params = hello.params if isinstance(hello, JSONRPCRequest) else None
        return await self._ids.new(Introduction.of(params or {}), principal.id) or uuid4().hex

    async def _stream(self, session: Session, fields: Fields, receive: Receive, send: Send) -> Response | None:
        with session:
            session.use()
            if (last := fields.get(_EVENT)) is not None:
                await session.resume(last.decode("latin-1"), _header_revision(fields), receive, send)
            elif session.is_listened_to:
                return refusal(409, _ONE_STREAM, headers=_named(session))
            else:
                await session.listen(receive, send)
        return None

    async def _delete(self, request: Request, fields: Fields) -> Response:
        """End a session for its client."""
        name = fields[_SESSION].decode("latin-1")
        found = await self._found(request, fields)
        if not isinstance(found, Session):
            return found or refusal(404, _NOT_FOUND)
        self._ending_here.add(name)
        try:
            if await self._ids.read(name, _principal(request.scope).id) is not None:
                await self._ended.add(name)
            self._open.pop(name, None)
            await found.end()
        finally:
            self._ending_here.discard(name)
        return Response(status_code=200, headers={**_named(found), "content-type": "application/json"})

    async def _found(self, request: Request, fields: Fields) -> Session | Response | None:
        """The session that a request names, opened if it is not known here; or the refusal."""
        if (named := fields.get(_SESSION)) is None:
            return None
        name, scope = named.decode("latin-1"), request.scope
        if (opening := self._opening.get(name)) is not None:
            await opening.wait()
        if name not in self._open and (refused := await self._open_again(name, request)) is not None:
            return refused
        last = fields.get(_EVENT)
        if last is not None and self._events.is_elsewhere(last.decode("latin-1")):
            return refusal(409, _ELSEWHERE)
        session = self._open.get(name)
        if session is None or session.owner != _owner(scope):
            return refusal(404, _NOT_FOUND)
        # The most recently used session is last in the order.
        self._open[name] = self._open.pop(name)
        return session

    async def _open_again(self, name: str, request: Request) -> Response | None:
        """Open a session that began at another gateway or in an earlier process; returns a refusal if impossible."""
        said = await self._ids.read(name, _principal(request.scope).id)
        if said is None and self._ids.is_unreadable_now(name):
            return refusal(503, _UNREADABLE, INTERNAL_ERROR)
        # A forwarded request concerns a session that began here, if anywhere.
        if said is None or FORWARDED_KEY in request.scope or await self._ended.has(name):
            return refusal(404, _NOT_FOUND)
        if (other := self._opening.get(name)) is not None:
            await other.wait()
            return None
        done = self._opening[name] = asyncio.Event()
        try:
            session = self._admitted(name, request.scope)
            if session is not None:
                with session:
                    await session.shake_hands_again(said.params, request)
        finally:
            del self._opening[name]
            done.set()
        return None if name in self._open else _full()

    # Making room, and ending sessions.

    def _admitted(self, name: str, scope: Scope) -> Session | None:
        """A new session; None if there is no room. In one turn of the event loop: no other session takes the place."""
        owner = _owner(scope)
        if self.is_full and not self._make_room(name, owner):
            logger.warning("Refusing to open a new session: %d sessions are already open", self._most)
            return None
        session = Session(self._server, self._lifespan, name, owner, self._events.of_session(), self._moments)
        self._open[name] = session
        return session

    def _make_room(self, name: str, opener: str | None) -> bool:
        """End a session to make room for another, if there is one to end.

        The caller with the most sessions gives one up for a caller with fewer, an unused one if possible. A new session
        never takes the place of a caller that has no more sessions than its own caller. A session that is opened again
        existed before, so it may also take the place of an unused session of its own caller or of a caller with more.
        """
        if (ended := self._given_up(name, opener)) is None:
            return False
        self._discard(self._open[ended])
        return True

    def _given_up(self, name: str, opener: str | None) -> str | None:
        """The session to end for one with this name, least recently used first; None if there is none."""
        owners = {name: session.owner for name, session in self._open.items()}
        held = Counter(owners.values())
        [(holder, most)] = held.most_common(1)
        idle = (session for session, known in self._open.items() if known.is_idle)
        if most >= held[opener] + 2:
            of_holder = [session for session, owner in owners.items() if owner == holder]
            return next((session for session in idle if owners[session] == holder), of_holder[0])
        if name not in self._opening:
            return None
        return next((one for one in idle if owners[one] == opener or held[owners[one]] > held[opener]), None)

    def _discard(self, session: Session) -> None:
        """End a session; its name can be reused at once."""
        if self._open.get(session.name) is session:
            del self._open[session.name]
        if not session.is_ended:
            self._tasks.spawn(session.end())

    def _end_unused(self, session: Session) -> None:
        if not session.was_used and session.is_idle:
            self._discard(session)

    def _end_elsewhere(self, is_ended: Callable[[str], bool]) -> None:
        """Close the sessions that were ended at another gateway."""
        for name, session in list(self._open.items()):
            if name not in self._ending_here and is_ended(name):
                self._discard(session)

    async def _end_idle(self) -> None:
        while True:
            await asyncio.sleep(min(_LOOKS, self._idle / 2))
            for session in list(self._open.values()):
                if session.idle_seconds() >= self._idle:
                    self._discard(session)


def _principal(scope: Scope) -> Principal:
    found = scope.get(PRINCIPAL_KEY)
    return found if isinstance(found, Principal) else ANYONE


def _owner(scope: Scope) -> str | None:
    """The owner of a session; None for all unverified callers."""
    principal = _principal(scope)
    return principal.id if principal.is_verified else None


def _named(session: Session) -> dict[str, str]:
    return {MCP_SESSION_ID_HEADER: session.name}


def _full() -> Response:
    return refusal(503, _FULL, INTERNAL_ERROR)


def _unacceptable(fields: Fields) -> Response | None:
    if not all(accepts(fields)):
        return refusal(406, _BOTH)
    return None if is_json(fields) else refusal(415, _NO_JSON)


def _header_revision(fields: Fields) -> str:
    revision = fields.get(_REVISION)
    return revision.decode("latin-1") if revision is not None else DEFAULT_NEGOTIATED_VERSION


def _revision(message: JSONRPCRequest, fields: Fields) -> str:
    """The revision of a request, as its client states it."""
    params: Mapping[str, Any] = message.params or {}
    if message.method != "initialize":
        return _header_revision(fields)
    return str(params.get("protocolVersion", DEFAULT_NEGOTIATED_VERSION))
