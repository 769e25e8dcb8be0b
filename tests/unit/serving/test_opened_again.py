"""Sessions that are opened again from their ids: never more of them than the limit, whoever brings how many ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings

from mcp_optimizer.domain.caller import ANYONE
from mcp_optimizer.limits import Limits
from mcp_optimizer.runtime.signatures import ReadKey, Signatures
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.http import McpEndpoint
from mcp_optimizer.serving.session_ids import Introduction, SessionIds
from tests.e2e.raw_clients import ACCEPT, HELLO, LEGACY, answer_of, message
from tests.waiting import until

MOST = 5


async def key() -> bytes:
    return b"of the database"


async def no_tools(
    _ctx: ServerRequestContext[object, object], _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[])


@asynccontextmanager
async def gateway(read: ReadKey = key) -> AsyncIterator[tuple[McpEndpoint, httpx2.AsyncClient]]:
    mcp = McpEndpoint(
        Server("test", version="1", on_list_tools=no_tools),
        gate=Gate(Limits(sessions=MOST)),
        hosts=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        signatures=Signatures(read),
    )
    transport = httpx2.ASGITransport(app=mcp.app)
    async with (
        mcp.run(),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=ACCEPT) as http,
    ):
        yield mcp, http


async def listed(http: httpx2.AsyncClient, session: str) -> httpx2.Response:
    headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
    return await http.post("/mcp", json=message("tools/list"), headers=headers)


async def test_many_sessions_of_other_gateways_never_exceed_the_limit_and_each_is_served() -> None:
    elsewhere = SessionIds(Signatures(key))
    async with gateway() as (mcp, http):
        ids = [await elsewhere.new(Introduction.of(HELLO), ANYONE.id) for _ in range(4 * MOST)]
        for session in [*ids, *ids[:3]]:
            assert "result" in answer_of(await listed(http, session))
        assert sum(map(mcp.sessions.has_session, ids)) == MOST
        assert all(map(mcp.sessions.has_session, ids[:3])), "those that were used last"


async def test_ids_that_nobody_signed_leave_nothing_behind() -> None:
    async with gateway() as (mcp, http):
        for number in range(200):
            assert (await listed(http, f"s1.{number:x}.{number:x}")).status_code == 404
        assert not mcp.sessions.is_full
        began = await http.post("/mcp", json=message("initialize", HELLO), headers={"MCP-Protocol-Version": LEGACY})
        assert began.status_code == 200
        assert await SessionIds(Signatures(key)).read(began.headers["mcp-session-id"], ANYONE.id) is not None


async def test_a_session_of_another_gateway_is_not_gone_while_it_cannot_be_verified() -> None:
    can_be_read = False

    async def read() -> bytes | None:
        return await key() if can_be_read else None

    session = await SessionIds(Signatures(key)).new(Introduction.of(HELLO), ANYONE.id)
    async with gateway(read) as (_, http):
        refused = await listed(http, session)
        # 404 would tell the client that it has to begin anew.
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "until the database answers" in answer_of(refused)["error"]["message"]
        assert [(await listed(http, name)).status_code for name in ("other", "s1." + "x" * 5_000)] == [404, 404]
        can_be_read = True

        async def is_served() -> bool:
            return (await listed(http, session)).status_code == 200

        await until(is_served)
