"""The connected clients, and the links through which servers reach them.

The only module that knows how the SDK reaches a client: on the stream of the request in progress, or else on the
connection. A modern client has no connection, only requests. Uses two private members of the SDK, which offers no
public way to reach a connection or to choose a question's id; `tests/contract/test_sdk_internals.py` checks them, and
`pyproject.toml` admits only the releases that the check was run on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeGuard

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp_types.methods import validate_client_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Scope

from mcp_optimizer.domain.caller import ANYONE, LOCAL_PRINCIPAL, Caller, ClientLink, Principal
from mcp_optimizer.domain.extensions import ANSWERS, TASKS, extension_of
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.messages import TooDeep, sendable
from mcp_optimizer.serving.relay.head import fields_of
from mcp_optimizer.serving.relay.places import ResourcePlace
from mcp_optimizer.upstream.questions import refusal
from mcp_optimizer.upstream.request_errors import RpcError

Context = ServerRequestContext[Any, Any]


class Middleware(Protocol):
    """Answers a request, or passes it on, without a coroutine of its own where it only passes on."""

    def __call__(self, ctx: Context, call_next: CallNext) -> Awaitable[HandlerResult]: ...


PRINCIPAL_KEY = "mcp_optimizer.principal"
"""The scope key under which an HTTP request carries its verified caller."""

ORPHANED_KEY = "mcp_optimizer.orphaned"
"""The scope key that marks an HTTP request as answering a call that waited at a gateway that is gone."""


@dataclass(frozen=True)
class PipeName:
    """One of several clients on pipes, in the place that an HTTP request has for others."""

    name: str

    @property
    def key(self) -> str:
        return f"local:{self.name}"


_STATE_KEY = "mcp-optimizer/client"
_SESSION = MCP_SESSION_ID_HEADER.encode()
_PASSED_ON = ("_meta", *ANSWERS)


def connection_of(ctx: Context) -> Connection:
    """The connection that a request came on, which lasts as long as its client does. Its `state` and `exit_stack` are
    public.
    """
    return ctx.session._connection


async def ask_client(
    session: ServerSession,
    method: str,
    params: Mapping[str, Any],
    *,
    on_request: bool,
    request_id: types.RequestId | None,
) -> dict[str, Any]:
    """A client's raw answer to a question, on the stream of the request in progress or on the connection.

    Does what the session's own `send_request` does, which cannot give the question an id. Raises MCPError, or
    ValidationError for an answer that the protocol does not define.
    """
    channel = session._request_outbound if on_request else session._connection.outbound
    options = CallOptions(request_id=request_id) if request_id is not None else None
    answer = await channel.send_raw_request(method, params, options)
    with contextlib.suppress(KeyError):
        validate_client_result(method, session.protocol_version, answer)
    return answer


@dataclass
class Client:
    """A connected legacy client, for as long as its connection lasts."""

    key: str
    name: str
    capabilities: Mapping[str, Any]
    session: ServerSession
    outbox: Outbox
    log_level: str | None = None
    watched: dict[str, ResourcePlace | None] = field(default_factory=dict)
    """The resources it subscribes to, by the URI it asked for; None while a subscription is being set up."""
    whose: str = ""
    """The caller, by id, that opened the connection."""

    def wants_logs(self, level: str) -> None:
        """Send the client log messages of this level and above from now on."""
        self.log_level = level


class _Link(NamedTuple):
    """A link to one client, on the stream of one request or of none. A tuple, because every call creates one."""

    key: str
    capabilities: Mapping[str, Any]
    is_modern: bool
    log_level: str | None
    session: ServerSession
    request_id: types.RequestId | None
    outbox: Outbox | None = None
    """For notifications outside requests; None for modern clients, which have none."""
    close_stream: Callable[[], Awaitable[None]] | None = None
    """Ends the stream of the request, so that the client asks for the rest; None if it cannot."""
    name_question: Callable[[], str] | None = None
    """Makes an id for a question, if other gateways may ask the same client; otherwise the SDK counts."""

    @property
    def lasting(self) -> ClientLink:
        return self._replace(request_id=None, close_stream=None)

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if (refused := refusal(self.capabilities, method, params)) is not None:
            raise refused
        if self.is_modern:
            raise RpcError(
                types.METHOD_NOT_FOUND,
                f"{method}: this client speaks a protocol revision in which it can be asked only by the answer to its "
                "own tools/call, prompts/get or resources/read, and it is not known which of them this is about",
            )
        try:
            asked = sendable(dict(params))
        except TooDeep as error:
            raise RpcError(types.INVALID_PARAMS, f"{method}: the parameters are {error}") from error
        number = self.name_question() if self.name_question is not None else None
        try:
            return await ask_client(
                self.session, method, asked, on_request=self.request_id is not None, request_id=number
            )
        except MCPError as error:
            raise RpcError(error.code, error.message, error.error.data) from error
        except ValidationError as error:
            raise RpcError(types.INTERNAL_ERROR, f"{method}: the client's answer is not valid") from error

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        if self.is_modern and (self.request_id is None or (self.log_level is None and method == _LOG)):
            # Modern clients get everything as part of a request, and log messages only on requests that want them.
            return
        if self.request_id is None and self.outbox is not None:
            self.outbox.put(method, params)
            return
        await _notify(self.session, method, params, self.request_id)

    async def release_streams(self) -> None:
        if self.close_stream is not None:
            await self.close_stream()


_LOG = "notifications/message"


async def _notify(
    session: ServerSession, method: str, params: Mapping[str, Any] | None, request_id: types.RequestId | None = None
) -> None:
    try:
        written = sendable(dict(params)) if params is not None else None
    except TooDeep:
        # Too deep for any client to read.
        return
    notice: Any = types.Notification[dict[str, Any] | None, str](method=method, params=written)
    try:
        await session.send_notification(notice, related_request_id=request_id)
    except (MCPError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


class Clients:
    """All connected legacy clients; also finds the caller of each request."""

    def __init__(
        self,
        left: Callable[[Client], None],
        limits: Limits = DEFAULT_LIMITS,
        name_question: Callable[[], str] | None = None,
    ) -> None:
        self._left = left
        self._name_question = name_question
        self._most_waiting = limits.pending_notifications
        self._connected: dict[int, Client] = {}

    def connected(self) -> list[Client]:
        return list(self._connected.values())

    def of(self, ctx: Context) -> Client | None:
        """The client of a request, stored with its connection; None for modern clients, which have no connection."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return None
        connection = connection_of(ctx)
        found = connection.state.get(_STATE_KEY)
        if isinstance(found, Client):
            return found
        if ctx.session.client_params is None:
            return None
        session = ctx.session
        outbox = Outbox(lambda method, params: _notify(session, method, params), self._most_waiting)
        name = client_name(ctx)
        whose = _principal_of(ctx.request.scope if is_http(ctx.request) else None).id
        client = Client(_key_of(ctx, name), name, _declared(session), session, outbox, whose=whose)
        connection.state[_STATE_KEY] = client
        self._connected[id(client)] = client
        connection.exit_stack.callback(self._leave, client)
        return client

    def _leave(self, client: Client) -> None:
        self._connected.pop(id(client), None)
        client.outbox.close()
        self._left(client)

    def link(self, ctx: Context) -> _Link:
        """The link to the client of a request."""
        if (client := self.of(ctx)) is not None:
            return self._lasting_link(ctx, client)
        return _single_link(ctx, _raw_meta(ctx), _key_of(ctx, client_name(ctx)))

    def _lasting_link(self, ctx: Context, client: Client) -> _Link:
        said = client.key, client.capabilities, False, client.log_level
        return _Link(*said, ctx.session, ctx.request_id, client.outbox, ctx.close_sse_stream, self._name_question)

    def caller(self, ctx: Context) -> Caller:
        """The caller of a request. The results of an unverified caller are kept under its connection."""
        params, request, client = ctx.params or {}, ctx.request, self.of(ctx)
        scope = request.scope if is_http(request) else None
        principal = _principal_of(scope)
        if client is not None:
            name, link = client.name, self._lasting_link(ctx, client)
        else:
            meta = _raw_meta(ctx)
            name = _name_in(meta)
            key = request.key if type(request) is PipeName else _link_key(scope, principal, name)
            link = _single_link(ctx, meta, key)
        passed_on = {part: params[part] for part in _PASSED_ON if part in params}
        is_alone = principal.is_verified and type(request) is not PipeName
        caller = Caller(name, principal.id if is_alone else link.key, link, passed_on, principal)
        if client is None and _has_tasks(meta):
            caller = caller._replace(wants_tasks=True)
        if scope is None or not (scope.get("query_string") or ORPHANED_KEY in scope):
            return caller
        return caller._replace(narrowed=narrowed_by(request), is_orphaned=ORPHANED_KEY in scope)


def _single_link(ctx: Context, meta: Mapping[str, Any], key: str) -> _Link:
    """A link to a client without a connection, on the stream of its request."""
    capabilities = meta.get(types.CLIENT_CAPABILITIES_META_KEY)
    return _Link(
        key,
        passable(capabilities) if capabilities and isinstance(capabilities, dict) else {},
        ctx.protocol_version in MODERN_PROTOCOL_VERSIONS,
        meta.get(types.LOG_LEVEL_META_KEY),
        ctx.session,
        ctx.request_id,
    )


def _declared(session: ServerSession) -> dict[str, Any]:
    declared = session.client_capabilities
    return passable(declared.model_dump(by_alias=True, exclude_none=True, mode="json")) if declared is not None else {}


def passable(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The capabilities that servers see: all except tasks, which the gateway declares itself, because it waits for the
    tasks of clients that cannot.

    A capability is an object; any other value declares nothing.
    """
    passed = {name: value for name, value in capabilities.items() if name != "tasks" and isinstance(value, dict)}
    if isinstance(extensions := passed.get("extensions"), dict) and TASKS in extensions:
        passed["extensions"] = {name: value for name, value in extensions.items() if name != TASKS}
    return passed


def _has_tasks(meta: Mapping[str, Any]) -> bool:
    """Whether a modern request declares that its client asks for the results of tasks itself."""
    capabilities = meta.get(types.CLIENT_CAPABILITIES_META_KEY)
    return isinstance(capabilities, dict) and extension_of(capabilities, TASKS) is not None


def _raw_meta(ctx: Context) -> Mapping[str, Any]:
    meta = (ctx.params or {}).get("_meta")
    return meta if isinstance(meta, dict) else {}


def is_http(request: Any) -> TypeGuard[Request]:
    """Whether a request came over HTTP; it is None on stdio. Type first: isinstance is slow for an abstract class."""
    return type(request) is Request or (request is not None and isinstance(request, Request))


def _principal_of(scope: Scope | None) -> Principal:
    """The sender of a request: over HTTP the verified caller or ANYONE, else the user who started the gateway."""
    if scope is None:
        return LOCAL_PRINCIPAL
    found = scope.get(PRINCIPAL_KEY)
    return found if isinstance(found, Principal) else ANYONE


def narrowed_by(request: Any) -> frozenset[str] | None:
    """The servers named in a request's address, `/mcp?servers=a,b`; None if it names none."""
    if not is_http(request) or not request.scope.get("query_string"):
        return None
    asked = request.query_params.get("servers", "")
    return frozenset(name.strip() for name in asked.split(",") if name.strip()) or None


def _key_of(ctx: Context, name: str) -> str:
    if type(ctx.request) is PipeName:
        return ctx.request.key
    scope = ctx.request.scope if is_http(ctx.request) else None
    return _link_key(scope, _principal_of(scope), name)


def _link_key(scope: Scope | None, principal: Principal, name: str) -> str:
    """The HTTP session, if there is one; for modern clients, which have none, the client's own name. A verified
    caller's key begins with its id; ids contain no line break, so no client name can imitate another caller's key.
    """
    if scope is None:
        return "local"
    session = fields_of(scope).get(_SESSION)
    own = session.decode("latin-1") if session else name
    return f"{principal.id}\n{own}" if principal.is_verified else f"http:{own}"


def client_name(ctx: Context) -> str:
    """The client's own name: from its `initialize` request, or from each modern request."""
    introduced = ctx.session.client_params
    return introduced.client_info.name if introduced is not None else _name_in(_raw_meta(ctx))


def _name_in(meta: Mapping[str, Any]) -> str:
    info = meta.get(types.CLIENT_INFO_META_KEY)
    name = info.get("name") if isinstance(info, dict) else None
    return name if isinstance(name, str) else ""


logger = logging.getLogger(__name__)

Send = Callable[[str, Mapping[str, Any] | None], Awaitable[None]]


class Outbox:
    """Queues notifications for one client. Adding one does not wait."""

    def __init__(self, send: Send, most: int) -> None:
        self._send = send
        self._most = most
        self._waiting: OrderedDict[object, tuple[str, Mapping[str, Any] | None]] = OrderedDict()
        self._tasks = BackgroundTasks(logger, "Cannot notify a client of a change")
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        if self._is_closed:
            return
        # A notified client reads the current state, however often it changed, so one notice per change is enough.
        self._waiting.setdefault(_change(method, params) or object(), (method, params))
        if len(self._waiting) > self._most:
            self._waiting.popitem(last=False)
            self.dropped += 1
        if self._sending is None:
            self._sending = self._tasks.spawn(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                _, (method, params) = self._waiting.popitem(last=False)
                await self._send(method, params)
        finally:
            # If one message fails, those queued behind it are still sent.
            has_more = self._waiting and not self._is_closed
            self._sending = self._tasks.spawn(self._send_all()) if has_more else None

    def close(self) -> None:
        """Drop everything, because the client is gone."""
        self._is_closed = True
        self._waiting.clear()
        self._tasks.cancel()


def _change(method: str, params: Mapping[str, Any] | None) -> object:
    """The change that a notification reports; None if it reports anything else."""
    if method.endswith("/list_changed"):
        return method
    return (method, (params or {}).get("uri")) if method == "notifications/resources/updated" else None
