"""One live MCP session with one upstream server, in whichever protocol era the server speaks.

Opened once by the pool and shared by all calls. Results come back as the raw JSON the server sent: the SDK's
typed results would drop fields and refuse whole answers. Knows nothing of restarts, catalogs or clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2
import mcp_types as types
from mcp.client._probe import negotiate_auto
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, ToolsListChanged, listen
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_optimizer.errors import CallInterrupted, CallTimeout, UpstreamRefusal
from mcp_optimizer.upstream.listing import Listing, list_tools
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.stdio import ChildProcess, run_child

_CONNECT_TIMEOUT = 10.0

_STATUS_ADVICE = {
    401: " (not authorised: check its headers)",
    403: " (forbidden: check its headers)",
    404: " (not found: check its url)",
    405: " (wrong method: check its url and type)",
}


class _ObservedDispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher, which also says when the connection is over."""

    def __init__(
        self, read_stream: ReadStream[SessionMessage | Exception], write_stream: WriteStream[SessionMessage]
    ) -> None:
        super().__init__(read_stream, write_stream)
        self.closed = asyncio.Event()

    async def run(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().run(*args, **kwargs)
        finally:
            self.closed.set()


class _RawSession(ClientSession):
    """The SDK's session, with a request whose result is not squeezed through its types."""

    async def request_raw(self, method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
        data: dict[str, Any] = {"method": method, "params": params}
        options: CallOptions = {}
        self._stamp(data, options)
        options["timeout"] = timeout
        return await self._dispatcher.send_raw_request(method, data["params"], options)


@dataclass
class Evidence:
    """What can be seen of a server besides its answers; it outlives the session, to say why that ended."""

    child: ChildProcess | None = None
    http_status: int | None = None

    def epitaph(self) -> str:
        """Why the session ended, as far as can be told; empty when nothing is known."""
        if self.child is not None:
            return self.child.epitaph()
        if self.http_status is not None and self.http_status >= 400:
            return f"it answers with HTTP status {self.http_status}{_STATUS_ADVICE.get(self.http_status, '')}"
        return ""


class UpstreamSession:
    """What the pool and its callers see of an open session."""

    def __init__(self, spec: ServerSpec, session: _RawSession, closed: asyncio.Event, evidence: Evidence) -> None:
        self._spec = spec
        self._session = session
        self._closed = closed
        self._evidence = evidence
        self.tools_changed = asyncio.Event()

    @property
    def protocol_version(self) -> str:
        return self._session.protocol_version or ""

    @property
    def server_version(self) -> str:
        info = self._session.server_info
        return f"{info.name} {info.version}".strip() if info else ""

    @property
    def is_modern(self) -> bool:
        return self._session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def negotiate(self, *, legacy: bool) -> None:
        """Agree on a protocol version. `legacy`: skip the probe that some older servers die of."""
        if legacy:
            await self._session.initialize()
        else:
            await negotiate_auto(self._session)

    async def list_tools(self, timeout: float) -> Listing:
        capabilities = self._session.server_capabilities
        if capabilities is not None and capabilities.tools is None:
            return Listing()
        return await list_tools(lambda method, params: self._session.request_raw(method, params, timeout))

    async def request(self, method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send one request and return the raw result; any number may be under way at once."""
        try:
            return await self._session.request_raw(method, params, timeout)
        except MCPError as error:
            raise self._translate(error, timeout) from error

    def _translate(self, error: MCPError, timeout: float) -> Exception:
        name = self._spec.name
        if error.code == types.CONNECTION_CLOSED:
            return CallInterrupted(
                name,
                f"The server {name!r} stopped in the middle of the call "
                f"({self.epitaph() or 'the connection was closed'}). It is being restarted. "
                "Whether the call took effect is not known.",
            )
        if error.code == types.REQUEST_TIMEOUT:
            return CallTimeout(
                name,
                f"The server {name!r} did not answer within {timeout:g} s. Whether the call took effect is not known.",
            )
        return UpstreamRefusal(name, error.code, error.message, error.error.data)

    def epitaph(self) -> str:
        return self._evidence.epitaph()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    async def check_alive(self, timeout: float) -> None:
        """A round trip that costs nothing; raises if the server is gone."""
        await self._session.request_raw("server/discover" if self.is_modern else "ping", {}, timeout)

    async def watch_tools(self) -> None:
        """On a modern server, keep the stream open that tells of changed tools. Older ones just notify."""
        capabilities = self._session.server_capabilities
        if not self.is_modern or capabilities is None or not (capabilities.tools and capabilities.tools.list_changed):
            return
        try:
            async with listen(self._session, tools_list_changed=True) as events:
                async for event in events:
                    if isinstance(event, ToolsListChanged):
                        self.tools_changed.set()
        except (MCPError, SubscriptionLost):
            # The tools stay as they are; a lost connection is noticed elsewhere.
            return


@asynccontextmanager
async def open_session(
    spec: ServerSpec, transport: Transport, client_info: types.Implementation, evidence: Evidence
) -> AsyncIterator[UpstreamSession]:
    """Connect to the server. The handshake is the caller's, under the caller's deadline."""
    async with AsyncExitStack() as stack:
        read_stream, write_stream = await stack.enter_async_context(_connect(spec, transport, evidence))
        dispatcher = _ObservedDispatcher(read_stream, write_stream)
        upstream: UpstreamSession

        async def on_message(message: IncomingMessage) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                upstream.tools_changed.set()

        session = _RawSession(dispatcher=dispatcher, client_info=client_info, message_handler=on_message)
        upstream = UpstreamSession(spec, session, dispatcher.closed, evidence)
        await stack.enter_async_context(session)
        yield upstream


@asynccontextmanager
async def _connect(spec: ServerSpec, transport: Transport, evidence: Evidence) -> AsyncIterator[TransportStreams]:
    def http_client(*_args: Any, **_kwargs: Any) -> httpx2.AsyncClient:
        return _http_client(spec, evidence)

    if transport is Transport.STDIO:
        async with run_child(spec) as (pipes, child):
            evidence.child = child
            yield pipes
    elif transport is Transport.HTTP:
        # The size of one event is the size of one result, and results may be large.
        async with (
            http_client() as client,
            streamable_http_client(spec.url, http_client=client, max_sse_event_size=None) as streams,
        ):
            yield streams
    else:
        async with sse_client(spec.url, httpx_client_factory=http_client) as streams:
            yield streams


@cache
def _ssl_context() -> Any:
    # Building one costs about 40 ms; every HTTP upstream shares it.
    return httpx2.create_ssl_context()


def _http_client(spec: ServerSpec, evidence: Evidence) -> httpx2.AsyncClient:
    async def record(response: httpx2.Response) -> None:
        evidence.http_status = response.status_code

    return httpx2.AsyncClient(
        headers=dict(spec.headers),
        # No read timeout: a stream may be silent for hours, and each call has its own deadline.
        timeout=httpx2.Timeout(_CONNECT_TIMEOUT, read=None),
        transport=httpx2.AsyncHTTPTransport(verify=_ssl_context(), retries=1),
        event_hooks={"response": [record]},
    )
