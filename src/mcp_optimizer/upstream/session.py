"""One session with one server, modern or legacy: agrees on a version, then carries requests.

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
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.context import get_current
from opentelemetry.propagate import inject
from opentelemetry.trace import get_current_span

from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import LOCAL, Caller, ClientLink
from mcp_optimizer.domain.extensions import SKILLS, TASKS, extension_of
from mcp_optimizer.domain.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HANDSHAKE_PROTOCOL_VERSIONS,
    INVALID_PARAMS,
    LATEST_HANDSHAKE_VERSION,
    LOG_LEVEL_META_KEY,
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    METHOD_NOT_FOUND,
    MODERN_PROTOCOL_VERSIONS,
    NAME_BEARING_METHODS,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_optimizer.errors import CallInterrupted, CallLost, CallTimeout, LoginRequired, UpstreamRefusal
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.diagnostics import CONNECTION_CLOSED, Diagnostics, Failure
from mcp_optimizer.upstream.exchanges import OnNotice, ignore_notice
from mcp_optimizer.upstream.listing import Listing, Request, list_tools, with_skills
from mcp_optimizer.upstream.messages import capabilities_of, shortened
from mcp_optimizer.upstream.pacing import Pacer
from mcp_optimizer.upstream.peer import Peer
from mcp_optimizer.upstream.request_errors import ExchangeLost, LoginNeeded, RpcError, RpcTimeout, ServerGone
from mcp_optimizer.upstream.tasks import METHODS
from mcp_optimizer.upstream.transports.connecting import Connect, connected

logger = logging.getLogger(__name__)


# The declarations are checked once, so that other modules can rely on their types and lengths.

_PROBE_TIMEOUT = 10.0
_LONGEST_NAME = 200

NOT_MODERN = "it does not speak modern MCP"


@dataclass(frozen=True)
class Agreement:
    """The agreed protocol version, and what the server declared."""

    protocol_version: str = ""
    server_version: str = ""
    capabilities: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    instructions: str = ""

    @lazy
    def is_modern(self) -> bool:
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    @lazy
    def has_tasks(self) -> bool:
        """Whether the server may answer a call with a task."""
        return self.is_modern and extension_of(self.capabilities, TASKS) is not None

    @lazy
    def has_skills(self) -> bool:
        """Whether the server lists skills, in either era."""
        return extension_of(self.capabilities, SKILLS) is not None

    def can(self, capability: str, detail: str | None = None) -> bool:
        """Whether the server declared a capability such as `resources`, or a detail of it such as `subscribe`."""
        declared = self.capabilities.get(capability)
        return declared is not None and (detail is None or bool(declared.get(detail)))


class Handshake:
    """One attempt to agree with the server behind a peer."""

    def __init__(self, peer: Peer, client_info: Mapping[str, Any]) -> None:
        self._peer = peer
        self._client_info = client_info

    async def agree(self, *, legacy: bool) -> Agreement:
        """Agree on a version. With `legacy`, start with `initialize`."""
        if legacy:
            try:
                return await self._initialize()
            except RpcError as error:
                if error.code != UNSUPPORTED_PROTOCOL_VERSION:
                    raise
                return await self._discover(_mutual(error) or MODERN_PROTOCOL_VERSIONS[-1])
        try:
            return await self._discover(MODERN_PROTOCOL_VERSIONS[-1])
        except LoginNeeded:
            raise
        except RpcError as error:
            if (version := _mutual(error)) is not None:
                return await self._discover(version)
        except ExchangeLost as error:
            if not error.was_sent:
                raise
        # Any other error means that it does not speak modern MCP.
        return await self._initialize_after_probe()

    async def _initialize_after_probe(self) -> Agreement:
        try:
            return await self._initialize()
        except RpcError as error:
            # A server that is slow to start may have accepted the probe after we stopped waiting for it.
            if (version := _mutual(error)) is None:
                raise
            return await self._discover(version)

    async def _discover(self, version: str) -> Agreement:
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: "server/discover"}
        params = {"_meta": envelope(version, self._client_info, LOCAL)}
        result = await self._peer.request("server/discover", params, _PROBE_TIMEOUT, headers=headers)
        supported = result.get("supportedVersions")
        if not isinstance(supported, list) or version not in supported:
            raise RpcError(METHOD_NOT_FOUND, NOT_MODERN)
        meta = result.get("_meta")
        stamp = meta.get(SERVER_INFO_META_KEY) if isinstance(meta, dict) else None
        return _agreement(version, stamp or result.get("serverInfo"), result, self._peer.limits)

    async def _initialize(self) -> Agreement:
        owner = self._peer.owner
        capabilities = dict(owner.capabilities) if owner is not None else {}
        if owner is not None and owner.is_modern and "roots" in capabilities:
            # Modern has no notification for changed roots.
            capabilities["roots"] = {}
        params = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": capabilities,
            "clientInfo": self._client_info,
        }
        result = await self._peer.request("initialize", params, None)
        version = result.get("protocolVersion")
        if not isinstance(version, str) or version not in HANDSHAKE_PROTOCOL_VERSIONS:
            shown = shortened(str(version), _LONGEST_NAME) if isinstance(version, str) else type(version).__name__
            raise RpcError(UNSUPPORTED_PROTOCOL_VERSION, f"it speaks an unknown protocol version: {shown}")
        agreement = _agreement(version, result.get("serverInfo"), result, self._peer.limits)
        await self._peer.notify("notifications/initialized", None, {MCP_PROTOCOL_VERSION_HEADER: version})
        return agreement


def _agreement(version: str, info: Any, result: Mapping[str, Any], limits: Limits) -> Agreement:
    instructions = result.get("instructions")
    return Agreement(
        version,
        _named(info),
        capabilities_of(result.get("capabilities")),
        shortened(instructions, limits.description) if isinstance(instructions, str) else "",
    )


def _named(info: Any) -> str:
    parts = [info.get("name"), info.get("version")] if isinstance(info, dict) else []
    return shortened(" ".join(part for part in parts if isinstance(part, str) and part), _LONGEST_NAME)


def envelope(version: str, client_info: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """The metadata of a modern request about its sender."""
    link = caller.link
    said = {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: client_info,
        CLIENT_CAPABILITIES_META_KEY: dict(link.capabilities) if link is not None else {},
    }
    if link is not None and link.log_level is not None:
        said[LOG_LEVEL_META_KEY] = link.log_level
    return said


def continue_trace(meta: dict[str, Any]) -> None:
    """Add the current trace, if any, to a request's metadata."""
    # Without tracing the context is empty, which is much faster to check than the span.
    if get_current() and (meta or get_current_span().get_span_context().is_valid):
        inject(meta)


def _mutual(error: RpcError) -> str | None:
    """The newest version that both sides speak, if the error lists the server's."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    if error.code != UNSUPPORTED_PROTOCOL_VERSION or not isinstance(supported, list):
        return None
    return next((version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in supported), None)


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
