"""Sessions of callers: whoever opens all of them takes none from those who have fewer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings

from mcp_optimizer.access.callers.door import Door
from mcp_optimizer.access.callers.verification import Credentials
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.limits import Limits
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.http import McpEndpoint
from mcp_optimizer.serving.sessions import Sessions
from tests.e2e.raw_clients import ACCEPT, HELLO, LEGACY, message
from tests.unit.serving.test_opened_again import key, no_tools

MOST = 6


class Named(Credentials):
    """Whoever shows a name is who they say."""

    async def of_bearer(self, text: str, resource: str, address: str = "") -> Principal:
        return Principal(text, f"key:{text}")


@asynccontextmanager
async def gateway() -> AsyncIterator[tuple[Sessions, httpx2.AsyncClient]]:
    mcp = McpEndpoint(
        Server("test", version="1", on_list_tools=no_tools),
        gate=Gate(Limits(sessions=MOST)),
        hosts=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        door=Door(Named(None), is_open=True),
        signatures=Signatures(key),
    )
    transport = httpx2.ASGITransport(app=mcp.app)
    async with (
        mcp.run(),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=ACCEPT) as http,
    ):
        yield mcp.sessions, http


def said_by(who: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": LEGACY} | ({"Authorization": f"Bearer {who}"} if who else {})


async def opened(http: httpx2.AsyncClient, who: str) -> str | None:
    """The id of a new session; None if there is no room."""
    began = await http.post("/mcp", json=message("initialize", HELLO), headers=said_by(who))
    assert began.status_code in (200, 503)
    assert began.status_code == 200 or "retry-after" in began.headers
    return began.headers.get("mcp-session-id")


async def pinged(http: httpx2.AsyncClient, who: str, session: str | None) -> int:
    assert session is not None
    headers = {**said_by(who), "Mcp-Session-Id": session}
    return (await http.post("/mcp", json=message("ping"), headers=headers)).status_code


def still_open(sessions: Sessions, ids: list[str | None]) -> int:
    return sum(sessions.has_session(session) for session in ids if session is not None)


async def test_whoever_opens_all_sessions_loses_some_to_others_and_gets_none_back() -> None:
    async with gateway() as (sessions, http):
        loud = [await opened(http, "loud") for _ in range(MOST + 3)]
        assert loud[MOST:] == [None] * 3, "all places are its own, as long as nobody else wants one"
        quiet = [await opened(http, "quiet") for _ in range(MOST)]
        assert [session is not None for session in quiet] == [True] * 3 + [False] * 3, "half for each"
        assert [await opened(http, "loud") for _ in range(5)] == [None] * 5
        assert len(sessions) == MOST
        assert (still_open(sessions, loud), still_open(sessions, quiet)) == (3, 3)
        assert sessions.has_session(loud[MOST - 1] or ""), "the oldest were ended"
        third = await opened(http, "third")
        assert await pinged(http, "third", third) == 200


async def test_those_who_are_not_known_are_one_caller_who_leaves_room_for_a_key() -> None:
    async with gateway() as (sessions, http):
        assert None not in [await opened(http, "") for _ in range(MOST)]
        assert await opened(http, "") is None
        assert await pinged(http, "key", await opened(http, "key")) == 200
        assert len(sessions) == MOST


async def test_sessions_in_use_are_ended_too_if_all_of_a_caller_are() -> None:
    async with gateway() as (sessions, http):
        loud = [await opened(http, "loud") for _ in range(MOST)]
        streams = [
            asyncio.ensure_future(http.get("/mcp", headers={**said_by("loud"), "Mcp-Session-Id": session or ""}))
            for session in loud
        ]
        await asyncio.wait(streams, timeout=0.1)
        assert await pinged(http, "quiet", await opened(http, "quiet")) == 200
        assert still_open(sessions, loud) == MOST - 1
        for stream in streams:
            stream.cancel()
        await asyncio.wait(streams, timeout=10)


async def test_a_session_that_lost_its_place_takes_it_back_from_its_own_caller_only() -> None:
    async with gateway() as (sessions, http):
        loud = [await opened(http, "loud") for _ in range(MOST)]
        quiet = [await opened(http, "quiet") for _ in range(3)]
        assert not sessions.has_session(loud[0] or "")
        for session in loud * 3:
            assert await pinged(http, "loud", session) == 200
            assert sessions.has_session(session or "")
        assert still_open(sessions, quiet) == 3
        assert len(sessions) == MOST


async def test_no_number_of_keys_takes_the_place_of_another() -> None:
    async with gateway() as (sessions, http):
        for number in range(MOST):
            await asyncio.gather(*(opened(http, f"key-{number}") for _ in range(4)))
        held = [await opened(http, f"key-{number}") for number in range(MOST)]
        assert held == [None] * MOST, "one each"
        assert len(sessions) == MOST


async def test_openings_at_the_same_time_never_exceed_the_limit_and_the_one_who_has_few_gets_in() -> None:
    async with gateway() as (sessions, http):
        await asyncio.gather(*(opened(http, "loud") for _ in range(MOST)))
        flood = [asyncio.ensure_future(opened(http, "loud")) for _ in range(50)]
        quiet = asyncio.ensure_future(opened(http, "quiet"))
        flood += [asyncio.ensure_future(opened(http, "loud")) for _ in range(50)]
        session = await quiet
        await asyncio.gather(*flood)
        assert sessions.has_session(session or "")
        assert len(sessions) == MOST
