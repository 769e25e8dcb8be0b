"""A session that ends while its requests are answered: their responses have an end, whatever is missing in them."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from mcp_optimizer.domain.caller import ANYONE
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.serving.session_ids import Introduction, SessionIds
from tests.e2e.raw_clients import ACCEPT, HELLO, LEGACY, message
from tests.unit.serving.test_opened_again import gateway, key

MANY = 10


@pytest.mark.parametrize("moment", range(1, 2 * MANY, 3))
async def test_responses_have_an_end_if_their_session_ends_after_some_of_them_is_sent(moment: int) -> None:
    session = await SessionIds(Signatures(key)).new(Introduction.of(HELLO), ANYONE.id)
    headers = {**ACCEPT, "Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
    async with gateway() as (mcp, _):
        sent, ending = 0, set[asyncio.Future[None]]()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            async def counted(part: Message) -> None:
                nonlocal sent
                sent += 1
                if sent == moment:
                    ending.add(asyncio.ensure_future(mcp.sessions.discard(session)))
                await send(part)

            await mcp.app(scope, receive, counted)

        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
            requests = (http.post("/mcp", json=message("tools/list", number=number)) for number in range(MANY))
            # A response without an end fails in the client.
            answers = await asyncio.gather(*requests)
        assert sent >= moment
        assert {answer.status_code for answer in answers} <= {200, 404}
