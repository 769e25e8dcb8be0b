"""A call that needs more scopes than its token has: the client is told which, gets them, and calls again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from mcp_types import JSONRPCRequest

from mcp_optimizer import Optimizer
from mcp_optimizer.access.callers.door import Door
from mcp_optimizer.access.callers.signed_tokens import KeySet, SignedTokens
from mcp_optimizer.access.callers.verification import Credentials
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.credentials import TokenIssuer
from mcp_optimizer.identity.web import Web
from mcp_optimizer.serving.http import build_http_app
from tests.conftest import WriteServers, plain_server
from tests.e2e.sdk_login import logged_in
from tests.servers.login_world import LoginWorld, issuer_world


def needed(caller: Caller, message: Any) -> Sequence[str]:
    """Calls write; everything else reads."""
    assert caller.principal.name == "corp:ada"
    is_call = isinstance(message, JSONRPCRequest) and message.method == "tools/call"
    return ["mcp:write"] if is_call else []


@asynccontextmanager
async def served(optimizer: Optimizer, world: LoginWorld) -> AsyncIterator[str]:
    """The optimizer behind a door that asks for scopes; its address."""
    issuer = TokenIssuer(name="corp", issuer=world.issuer, required_scopes=("mcp:read",))
    web = Web()
    credentials = Credentials(None, [issuer], {issuer.issuer: SignedTokens(issuer, KeySet(issuer, web))}, web.close)
    app = build_http_app(
        optimizer.mcp_server(),
        optimizer.catalog,
        host="127.0.0.1",
        allowed_hosts=(),
        allowed_origins=(),
        version="1",
        is_ready=lambda: True,
        door=Door(credentials, is_open=False, needed_scopes=needed),
    )
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, ws="none", log_level="critical", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await serving
        await credentials.close()


async def test_a_client_that_lacks_a_scope_for_one_call_gets_it_and_calls_again(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one")})
    with issuer_world() as world:
        async with (
            Optimizer.from_config(config, database="none") as optimizer,
            served(optimizer, world) as address,
            logged_in(address, world, "legacy") as (client, storage),
        ):
            await client.list_tools()
            assert storage.tokens is not None
            assert storage.tokens.scope == "mcp:read"
            asked = {"tool_name": "echo", "parameters": {"value": "hi"}}
            assert not (await client.call_tool("call_tool", asked)).is_error
            assert set((storage.tokens.scope or "").split()) == {"mcp:read", "mcp:write"}
            assert world.counts()["authorizations"] == 2
