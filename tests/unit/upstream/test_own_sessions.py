"""A client's own session with a server: one that is closing is given to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.upstream.diagnostics import Diagnostics
from mcp_optimizer.upstream.exchanges import only_updates
from mcp_optimizer.upstream.peer import Peer
from mcp_optimizer.upstream.session import UpstreamSession
from mcp_optimizer.upstream.session_choice import OwnSessions

SPEC = ServerSpec(name="files", transport=Transport.STDIO)


class Link:
    """A client that can be asked."""

    key = "http:ada"
    capabilities: Mapping[str, Any] = {"elicitation": {}}
    is_modern = False
    log_level: str | None = None

    @property
    def lasting(self) -> ClientLink:
        return self

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError("nobody asks")

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        raise AssertionError("nobody tells")

    async def release_streams(self) -> None:
        raise AssertionError("nobody lets go")


class Server:
    """Opens sessions, and takes its time to close them, as a child process does."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.may_close = asyncio.Event()

    @asynccontextmanager
    async def open(self, _link: ClientLink) -> AsyncIterator[UpstreamSession]:
        peer = Peer(lambda _method, _params: None)
        self.peers.append(peer)
        yield UpstreamSession(SPEC, peer, {}, Diagnostics())
        await self.may_close.wait()


async def test_a_session_that_is_closing_is_given_to_nobody() -> None:
    server = Server()
    sessions = OwnSessions(server.open, 8, (OSError,))
    first = await sessions.of(Link(), "ada")
    sessions.leave("ada")
    second = await sessions.of(Link(), "ada")
    assert second is not None
    assert second is not first
    assert sessions.existing("ada") is second
    assert sessions.opened() == [second]
    server.may_close.set()
    await sessions.close()
    assert sessions.opened() == []


async def test_a_session_whose_server_ended_is_given_to_nobody_while_it_closes() -> None:
    server = Server()
    sessions = OwnSessions(server.open, 8, (OSError,))
    first = await sessions.of(Link(), "ada")
    server.peers[0].close()
    for _ in range(10):
        await asyncio.sleep(0)
    assert sessions.existing("ada") is None
    assert await sessions.of(Link(), "ada") is not first
    server.may_close.set()
    await sessions.close()


async def test_sessions_that_are_closing_count_as_long_as_they_are_there() -> None:
    server = Server()
    sessions = OwnSessions(server.open, 2, (OSError,))
    for _ in range(2):
        assert await sessions.of(Link(), "ada") is not None
        sessions.leave("ada")
    assert await sessions.of(Link(), "ada") is None
    server.may_close.set()
    await sessions.close()
    assert await sessions.of(Link(), "ada") is not None
    await sessions.close()


def test_of_what_a_session_of_one_client_says_only_changed_resources_are_passed_on() -> None:
    heard: list[str] = []
    hear = only_updates(lambda method, _params: heard.append(method))
    for method in ("resources/list_changed", "resources/updated", "tools/list_changed", "prompts/list_changed"):
        hear(f"notifications/{method}", {"uri": "note:///1"})
    assert heard == ["notifications/resources/updated"]
