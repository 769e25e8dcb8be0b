"""One session with one server, modern or legacy.

Results are returned as the raw JSON the server sent, and requests are sent as the caller made them, plus the metadata
and headers that the era requires. The server sees the capabilities of its client: in legacy those of the session's
owner, in modern those of each call's client. Used by the supervisor; knows nothing of restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import LOCAL, Caller, ClientLink
from mcp_optimizer.domain.extensions import TASKS
from mcp_optimizer.domain.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_optimizer.errors import CallInterrupted, CallLost, CallTimeout, LoginRequired, UpstreamRefusal
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.diagnostics import CONNECTION_CLOSED, Diagnostics, Failure
from mcp_optimizer.upstream.handshake import Agreement, Handshake, continue_trace, envelope
from mcp_optimizer.upstream.listing import Listing, Request, list_tools
from mcp_optimizer.upstream.notifications import OnNotice, ignore_notice
from mcp_optimizer.upstream.pacing import Pacer
from mcp_optimizer.upstream.peer import Peer
from mcp_optimizer.upstream.request_errors import ExchangeLost, LoginNeeded, RpcError, RpcTimeout, ServerGone
from mcp_optimizer.upstream.skills import with_skills
from mcp_optimizer.upstream.tasks import METHODS
from mcp_optimizer.upstream.transports.connecting import Connect, connected

logger = logging.getLogger(__name__)

_FIRST_LISTEN_PAUSE = 1.0
_LONGEST_LISTEN_PAUSE = 60.0
"""Seconds before a stream that ended is reopened: at first, and after it ended repeatedly."""

_NAMING = {**NAME_BEARING_METHODS, **dict.fromkeys(METHODS, "taskId")}
"""The parameter that a header repeats, by method."""

_WITH_TASKS = frozenset(("tools/call", *METHODS))
"""Requests with which the gateway declares that it can handle tasks."""

_ENVELOPE = frozenset((PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY))
"""The metadata keys about a request's sender. The client's values are replaced by ours for the server."""


class UpstreamSession:
    """An open session, as the supervisor and its callers see it."""

    def __init__(self, spec: ServerSpec, peer: Peer, client_info: dict[str, Any], diagnostics: Diagnostics) -> None:
        self._spec = spec
        self._peer = peer
        self._client_info = client_info
        self._has_headers = spec.transport is not Transport.STDIO
        self._diagnostics = diagnostics
        self._redactor = Redactor(spec, lambda: diagnostics.secrets())
        self._param_headers: dict[str, dict[tuple[str, ...], str]] = {}
        self._watching = BackgroundTasks(logger, "A resource could not be watched")
        self._watches: dict[str, asyncio.Task[None]] = {}
        self.agreement = Agreement()

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def is_modern(self) -> bool:
        return self.agreement.is_modern

    @property
    def is_idle(self) -> bool:
        return self._peer.is_idle

    @property
    def is_working(self) -> bool:
        """Whether the server has a request to answer."""
        return self._peer.is_working

    @property
    def is_closed(self) -> bool:
        return self._peer.closed.is_set()

    @property
    def heard_at(self) -> float:
        """When the server last sent anything valid, in the event loop's time."""
        return self._peer.heard_at

    def can(self, capability: str, detail: str | None = None) -> bool:
        """Whether the server declared a capability such as `resources`, or a detail of it such as `subscribe`."""
        return self.agreement.can(capability, detail)

    async def negotiate(self, *, legacy: bool) -> None:
        """Agree on a protocol version. With `legacy`, start with `initialize`."""
        self.agreement = await Handshake(self._peer, self._client_info).agree(legacy=legacy)

    async def log_for(self, client: ClientLink, timeout: float) -> None:
        """Have a legacy server send the log messages that its client wants."""
        wants_logs = client.log_level is not None and not client.is_modern
        if wants_logs and self.can("logging") and not self.is_modern:
            await self.request("logging/setLevel", {"level": client.log_level}, timeout)

    def adapt(self, spec: ServerSpec) -> None:
        """Use an entry that differs only in parts the server does not see, such as its selection of tools."""
        self._spec = spec

    async def list_tools(self, timeout: float, pacer: Pacer) -> Listing:
        """All tools and skills, within one time limit for all pages together, which does not count our time to read
        them.
        """
        loop, left = asyncio.get_running_loop(), timeout

        async def page(method: str, params: dict[str, Any]) -> dict[str, Any]:
            nonlocal left
            async with asyncio.timeout_at(loop.time() + left) as deadline:
                result = await self._send(method, params, timeout, LOCAL)
            left = (deadline.when() or 0.0) - loop.time()
            if self.is_modern and self._spec.transport is Transport.HTTP:
                self._note_param_headers(result.get("tools"))
            return result

        limits = self._peer.limits
        has_tools = self.can("tools") or not self.agreement.capabilities
        listing = await list_tools(page, limits, pacer) if has_tools else Listing()
        if self.agreement.has_skills:
            listing = await self._with_skills(listing, page, pacer)
        return listing.of(self._spec.tools) if self._spec.tools else listing

    async def _with_skills(self, listing: Listing, page: Request, pacer: Pacer) -> Listing:
        """The listing with the server's skills. A server that does not list them keeps its tools."""
        try:
            return await with_skills(listing, page, self._peer.limits, pacer)
        except (RpcError, ExchangeLost, TimeoutError) as error:
            logger.warning("Server %s has skills but does not list them (%s).", self.name, type(error).__name__)
            return listing

    def _note_param_headers(self, tools: Any) -> None:
        """Note the parameters that must also be sent as headers."""
        # Loaded with the first modern server over HTTP: the SDK's rules for headers bring all of the protocol's models.
        from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

        for tool in tools if isinstance(tools, list) else []:
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str) or len(self._param_headers) >= self._peer.limits.tools:
                continue
            schema = tool.get("inputSchema")
            if find_invalid_x_mcp_header(schema) is None and (found := x_mcp_header_map(schema)):
                self._param_headers[name] = found
            else:
                self._param_headers.pop(name, None)

    async def request(
        self, method: str, params: dict[str, Any], timeout: float, caller: Caller = LOCAL
    ) -> dict[str, Any]:
        """Send one request and return the raw result; any number may be in progress at once."""
        try:
            return await self._send(method, params, timeout, caller)
        except (RpcError, ExchangeLost, ServerGone) as error:
            raise self._translate(error, timeout) from error

    def _send(
        self, method: str, params: dict[str, Any], timeout: float | None, caller: Caller
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        params, token = dict(params), None
        meta: dict[str, Any] = {}
        for key, given in caller.passed_on.items():
            if key != "_meta":
                params.setdefault(key, given)
            elif isinstance(given, dict):
                meta = {name: value for name, value in given.items() if name not in _ENVELOPE}
                token = meta.pop("progressToken", None)
        # The server's spans become children of ours; without tracing, the caller's context passes unchanged.
        continue_trace(meta)
        if self.agreement.is_modern:
            meta.update(envelope(self.agreement.protocol_version, self._client_info, caller))
            if method in _WITH_TASKS and self.agreement.has_tasks:
                meta[CLIENT_CAPABILITIES_META_KEY] = _with_tasks(meta[CLIENT_CAPABILITIES_META_KEY])
        elif meta:
            meta.pop(LOG_LEVEL_META_KEY, None)
        if meta:
            params["_meta"] = meta
        headers = self._headers(method, params) if self._has_headers else {}
        return self._peer.request(method, params, timeout, headers=headers, link=caller.link, progress_token=token)

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """The HTTP headers that repeat parts of a request, so that routers need not read its body."""
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.agreement.protocol_version}
        if not self.is_modern:
            return headers
        headers[MCP_METHOD_HEADER] = method
        name = params.get(_NAMING.get(method, ""))
        if isinstance(name, str):
            # As in `_note_param_headers`.
            from mcp.shared.inbound import encode_header_value, mcp_param_headers

            try:
                headers[MCP_NAME_HEADER] = encode_header_value(name)
                if method == "tools/call" and name in self._param_headers:
                    headers |= mcp_param_headers(self._param_headers[name], params.get("arguments") or {})
            except UnicodeEncodeError:
                raise RpcError(INVALID_PARAMS, "a value to be sent as a header is not valid text") from None
        return headers

    def _translate(self, error: RpcError | ExchangeLost | ServerGone, timeout: float) -> Exception:
        name = self._spec.name
        if isinstance(error, LoginNeeded):
            return LoginRequired(name, f"The server {name!r} did not take the call: {error.message}.")
        if isinstance(error, RpcError):
            said = self._redactor
            return UpstreamRefusal(name, error.code, said.text(error.message), said.value(error.data))
        if isinstance(error, RpcTimeout):
            waited = (
                f"was not done after {error.seconds:g} s" if error.in_all else f"did not answer within {timeout:g} s"
            )
            return CallTimeout(name, f"The server {name!r} {waited}. Whether the call took effect is not known.")
        if isinstance(error, ServerGone):
            why = self.failure() or str(error) or CONNECTION_CLOSED
            return CallInterrupted(
                name,
                f"The server {name!r} stopped in the middle of the call ({why}). It is being restarted. "
                "Whether the call took effect is not known.",
            )
        effect = "Whether the call took effect is not known" if error.was_sent else "The call was not made; try again"
        return CallLost(
            name,
            f"The connection to the server {name!r} broke in this call ({self._redactor.text(str(error))}). {effect}.",
        )

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Pass a client's notification on to a legacy server; modern has none. Errors are ignored."""
        if not self.is_modern:
            with contextlib.suppress(RpcError, ExchangeLost, ServerGone):
                await self._peer.notify(method, params, self._headers(method, {}))

    def own(self, client: ClientLink | None) -> None:
        """Make this session one client's own, or nobody's. A client that can be asked must own it before it is
        negotiated.
        """
        self._peer.own(client)

    def close_now(self) -> None:
        """End the session, failing everything that waits for it."""
        self._peer.close()

    def failure(self) -> Failure | None:
        return self._diagnostics.failure()

    async def wait_closed(self) -> None:
        await self._peer.closed.wait()

    async def check_alive(self, timeout: float) -> None:
        """Make a cheap round trip. Any response is a sign of life, even a refusal; raises if none comes."""
        with contextlib.suppress(RpcError):
            await self._send("server/discover" if self.is_modern else "ping", {}, timeout, LOCAL)

    async def watch_lists(self) -> None:
        """Keep the stream open on which a modern server announces changed lists. Legacy servers need none."""
        kinds = {
            f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources") if self.can(kind, "listChanged")
        }
        if self.is_modern and kinds:
            await self._listen(kinds)

    async def _listen(self, wanted: dict[str, Any]) -> None:
        """Listen until the server refuses; a stream that ends is reopened after growing pauses."""
        pause = _FIRST_LISTEN_PAUSE
        loop = asyncio.get_running_loop()
        while not self.is_closed:
            opened_at = loop.time()
            try:
                await self._send("subscriptions/listen", {"notifications": wanted}, None, LOCAL)
            except RpcError:
                return
            except (ExchangeLost, ServerGone):
                # If more than this stream failed, the monitoring notices.
                pass
            if loop.time() - opened_at > _LONGEST_LISTEN_PAUSE:
                pause = _FIRST_LISTEN_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_LISTEN_PAUSE)

    async def watch_resource(self, uri: str, timeout: float) -> None:
        """Subscribe to changes of a resource."""
        if not self.is_modern:
            await self.request("resources/subscribe", {"uri": uri}, timeout)
        elif uri not in self._watches:
            self._watches[uri] = self._watching.spawn(self._listen({"resourceSubscriptions": [uri]}))

    async def unwatch_resource(self, uri: str, timeout: float) -> None:
        if not self.is_modern:
            await self.request("resources/unsubscribe", {"uri": uri}, timeout)
        elif (task := self._watches.pop(uri, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        await self._watching.close()


def _with_tasks(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    extensions = capabilities.get("extensions")
    return {**capabilities, "extensions": {**(extensions if isinstance(extensions, dict) else {}), TASKS: {}}}


@asynccontextmanager
async def open_session(
    spec: ServerSpec,
    transport: Transport,
    client_info: dict[str, Any],
    diagnostics: Diagnostics,
    on_notice: OnNotice = ignore_notice,
    owner: ClientLink | None = None,
    limits: Limits = DEFAULT_LIMITS,
    connect: Connect = connected,
) -> AsyncIterator[UpstreamSession]:
    """Connect to the server. The caller negotiates, under its own deadline."""
    peer = Peer(on_notice, owner, limits, diagnostics.dropped)
    async with connect(spec, transport, peer, diagnostics):
        session = UpstreamSession(spec, peer, client_info, diagnostics)
        try:
            yield session
        finally:
            await session.close()
