"""One live MCP session with one upstream server, in whichever protocol era the server speaks.

Results come back as the raw JSON the server sent, and what goes out is what the caller sent, with what the era
requires around it. The client features that a server is told of are those of the client it serves: of the
owner of the session in the older era, of each call's client in the newer one. Knows nothing of restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from opentelemetry.propagate import inject

from mcp_optimizer.caller import LOCAL, Caller, ClientLink
from mcp_optimizer.errors import CallInterrupted, CallTimeout, UpstreamRefusal
from mcp_optimizer.upstream.listing import Listing, list_tools
from mcp_optimizer.upstream.peer import ConnectionLost, Peer, RpcError, RpcTimeout
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.stdio import run_child
from mcp_optimizer.upstream.wires import Evidence, older_sse, streamable_http

_PROBE_TIMEOUT = 10.0
_LISTEN_PAUSE = 1.0

_ENVELOPE = (types.PROTOCOL_VERSION_META_KEY, types.CLIENT_INFO_META_KEY, types.CLIENT_CAPABILITIES_META_KEY)
"""What a request says of its sender: of the client to us, of us to the server."""

OnNotice = Callable[[str, Mapping[str, Any]], None]


class UpstreamSession:
    """What the pool and its callers see of an open session."""

    def __init__(self, spec: ServerSpec, peer: Peer, client_info: dict[str, Any], evidence: Evidence) -> None:
        self._spec = spec
        self._peer = peer
        self._client_info = client_info
        self._evidence = evidence
        self._param_headers: dict[str, dict[tuple[str, ...], str]] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self.protocol_version = ""
        self.server_version = ""
        self.capabilities: Mapping[str, Any] = {}
        self.instructions = ""

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def is_modern(self) -> bool:
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def is_idle(self) -> bool:
        return self._peer.is_idle

    def can(self, capability: str, detail: str | None = None) -> bool:
        """Whether the server declared a capability, such as resources, or resources' subscribe."""
        declared = self.capabilities.get(capability)
        return declared is not None and (detail is None or bool(declared.get(detail)))

    async def negotiate(self, *, legacy: bool) -> None:
        """Agree on a protocol version. `legacy`: begin with the older handshake."""
        if legacy:
            try:
                await self._initialize()
            except RpcError as error:
                if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                    raise
                await self._discover(_mutual(error) or MODERN_PROTOCOL_VERSIONS[-1])
            return
        try:
            await self._discover(MODERN_PROTOCOL_VERSIONS[-1])
        except RpcError as error:
            if (version := _mutual(error)) is not None:
                await self._discover(version)
            else:
                # Whatever it says: it does not speak the newer era.
                await self._initialize_after_probe()

    async def _initialize_after_probe(self) -> None:
        try:
            await self._initialize()
        except RpcError as error:
            # A server slow to start may have taken the probe, after all, when nobody waited for its answer any more.
            if (version := _mutual(error)) is None:
                raise
            await self._discover(version)

    async def _discover(self, version: str) -> None:
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: "server/discover"}
        params = {"_meta": self._envelope(version, LOCAL)}
        result = await self._peer.request("server/discover", params, _PROBE_TIMEOUT, headers=headers)
        supported = result.get("supportedVersions")
        supported = supported if isinstance(supported, list) else []
        if version not in supported:
            raise RpcError(types.METHOD_NOT_FOUND, "it does not speak the newer era")
        info = (result.get("_meta") or {}).get(types.SERVER_INFO_META_KEY) or result.get("serverInfo")
        self._adopt(version, info, result)

    async def _initialize(self) -> None:
        owner = self._peer.owner
        capabilities = dict(owner.capabilities) if owner is not None else {}
        if owner is not None and owner.is_modern and "roots" in capabilities:
            # In the newer era nobody says that they changed.
            capabilities["roots"] = {}
        params = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": capabilities,
            "clientInfo": self._client_info,
        }
        result = await self._peer.request("initialize", params, None)
        version = result.get("protocolVersion")
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise RpcError(types.UNSUPPORTED_PROTOCOL_VERSION, f"it speaks an unknown protocol version: {version}")
        self._adopt(version, result.get("serverInfo"), result)
        await self._peer.notify("notifications/initialized", None, self._headers("notifications/initialized", {}))

    def _adopt(self, version: str, info: Any, result: Mapping[str, Any]) -> None:
        self.protocol_version = version
        capabilities, instructions = result.get("capabilities"), result.get("instructions")
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        self.instructions = instructions if isinstance(instructions, str) else ""
        if isinstance(info, dict):
            self.server_version = f"{info.get('name', '')} {info.get('version', '')}".strip()

    async def list_tools(self, timeout: float) -> Listing:
        if self.capabilities and not self.can("tools"):
            return Listing()

        async def page(method: str, params: dict[str, Any]) -> dict[str, Any]:
            result = await self._send(method, params, timeout, LOCAL)
            if self.is_modern and self._spec.transport is Transport.HTTP:
                self._note_param_headers(result.get("tools"))
            return result

        listing = await list_tools(page)
        return listing.of(self._spec.tools) if self._spec.tools else listing

    def _note_param_headers(self, tools: Any) -> None:
        """Remember which parameters travel as headers, too."""
        for tool in tools if isinstance(tools, list) else []:
            if isinstance(tool, dict) and (found := x_mcp_header_map(tool.get("inputSchema"))):
                self._param_headers[str(tool.get("name"))] = found

    async def request(
        self, method: str, params: dict[str, Any], timeout: float, caller: Caller = LOCAL
    ) -> dict[str, Any]:
        """Send one request and return the raw result; any number may be under way at once."""
        try:
            return await self._send(method, params, timeout, caller)
        except (RpcError, ConnectionLost) as error:
            raise self._translate(error, timeout) from error

    async def _send(self, method: str, params: dict[str, Any], timeout: float | None, caller: Caller) -> dict[str, Any]:
        given = caller.passing.get("_meta") or {}
        meta = {key: value for key, value in given.items() if key not in _ENVELOPE}
        token = meta.pop("progressToken", None)
        # The server's part of the trace hangs below ours; where nobody traces, the caller's context passes as it is.
        inject(meta)
        extra = {key: value for key, value in caller.passing.items() if key not in ("_meta", *params)}
        if self.is_modern:
            meta |= self._envelope(self.protocol_version, caller)
        else:
            meta.pop(types.LOG_LEVEL_META_KEY, None)
        params = {**params, **extra, "_meta": meta} if meta else {**params, **extra}
        return await self._peer.request(
            method,
            params,
            timeout,
            headers=self._headers(method, params),
            link=caller.link,
            progress_token=token,
        )

    def _envelope(self, version: str, caller: Caller) -> dict[str, Any]:
        link = caller.link
        envelope = {
            types.PROTOCOL_VERSION_META_KEY: version,
            types.CLIENT_INFO_META_KEY: self._client_info,
            types.CLIENT_CAPABILITIES_META_KEY: dict(link.capabilities) if link is not None else {},
        }
        if link is not None and link.log_level is not None:
            envelope[types.LOG_LEVEL_META_KEY] = link.log_level
        return envelope

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """What a request says twice over HTTP, so that whoever routes it need not read it."""
        if self._spec.transport is Transport.STDIO:
            return {}
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.protocol_version}
        if not self.is_modern:
            return headers
        headers[MCP_METHOD_HEADER] = method
        name = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call" and name in self._param_headers:
                headers |= mcp_param_headers(self._param_headers[name], params.get("arguments") or {})
        return headers

    def _translate(self, error: RpcError | ConnectionLost, timeout: float) -> Exception:
        name = self._spec.name
        lost = isinstance(error, ConnectionLost) or error.code == types.CONNECTION_CLOSED
        if lost:
            why = self.epitaph() or str(error) or "the connection was closed"
            return CallInterrupted(
                name,
                f"The server {name!r} stopped in the middle of the call ({why}). It is being restarted. "
                "Whether the call took effect is not known.",
            )
        if isinstance(error, RpcTimeout):
            return CallTimeout(
                name,
                f"The server {name!r} did not answer within {timeout:g} s. Whether the call took effect is not known.",
            )
        assert isinstance(error, RpcError)
        return UpstreamRefusal(name, error.code, error.message, error.data)

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Pass a client's notification on; only the older era has any."""
        if not self.is_modern:
            await self._peer.notify(method, params, self._headers(method, {}))

    def own(self, client: ClientLink) -> None:
        """From now on this session is one client's; to be said before it is negotiated."""
        self._peer.owner = client

    def close_now(self) -> None:
        """Nobody should wait for it any more."""
        self._peer.close()

    def epitaph(self) -> str:
        return self._evidence.epitaph()

    async def wait_closed(self) -> None:
        await self._peer.closed.wait()

    async def check_alive(self, timeout: float) -> None:
        """A round trip that costs nothing; raises if the server is gone."""
        await self._send("server/discover" if self.is_modern else "ping", {}, timeout, LOCAL)

    async def watch_lists(self) -> None:
        """On a modern server, keep the stream open that tells of changed lists. Older ones just notify."""
        kinds = {
            f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources") if self.can(kind, "listChanged")
        }
        if self.is_modern and kinds:
            await self._listen(kinds)

    async def _listen(self, wanted: dict[str, Any]) -> None:
        """Until the server refuses; a stream that ends is opened again."""
        while not self._peer.closed.is_set():
            try:
                await self._send("subscriptions/listen", {"notifications": wanted}, None, LOCAL)
            except RpcError as error:
                if error.code != types.CONNECTION_CLOSED:
                    return
            except ConnectionLost:
                # Noticed elsewhere, if it is more than this stream.
                pass
            await asyncio.sleep(_LISTEN_PAUSE)

    async def watch_resource(self, uri: str, timeout: float) -> None:
        """Be told when a resource changes."""
        if not self.is_modern:
            await self.request("resources/subscribe", {"uri": uri}, timeout)
        elif uri not in self._watches:
            self._watches[uri] = asyncio.create_task(self._listen({"resourceSubscriptions": [uri]}))

    async def unwatch_resource(self, uri: str, timeout: float) -> None:
        if not self.is_modern:
            await self.request("resources/unsubscribe", {"uri": uri}, timeout)
        elif (task := self._watches.pop(uri, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        watches = list(self._watches.values())
        for task in watches:
            task.cancel()
        if watches:
            await asyncio.wait(watches)


def _mutual(error: RpcError) -> str | None:
    """The newest version that both sides speak, if the error names those of the server."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    if error.code != types.UNSUPPORTED_PROTOCOL_VERSION or not isinstance(supported, list):
        return None
    return next((version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in supported), None)


@asynccontextmanager
async def open_session(
    spec: ServerSpec,
    transport: Transport,
    client_info: dict[str, Any],
    evidence: Evidence,
    on_notice: OnNotice = lambda _method, _params: None,
    owner: ClientLink | None = None,
) -> AsyncIterator[UpstreamSession]:
    """Connect to the server. The handshake is the caller's, under the caller's deadline."""
    peer = Peer(on_notice, owner)
    async with AsyncExitStack() as stack:
        if transport is Transport.STDIO:
            evidence.child = await stack.enter_async_context(run_child(spec, peer))
        elif transport is Transport.HTTP:
            await stack.enter_async_context(streamable_http(spec, peer, evidence))
        else:
            await stack.enter_async_context(older_sse(spec, peer, evidence))
        session = UpstreamSession(spec, peer, client_info, evidence)
        try:
            yield session
        finally:
            await session.close()
