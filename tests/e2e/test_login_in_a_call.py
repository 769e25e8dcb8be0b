"""A call needs more permissions, and its client shows its user where to give them: the call then goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests.e2e.logging_in import servers
from tests.e2e.running import gateway_on_stdio, until_found
from tests.e2e.test_logins import gateway, log_in
from tests.servers.login_world import LoginWorld, login_world

CALL: dict[str, Any] = {"tool_name": "write_note", "parameters": {}}
pytestmark = pytest.mark.slow

ADVICE = "(mcp:write): run `mcp-optimizer login notes`"


@pytest.fixture(scope="module")
def world() -> Iterator[LoginWorld]:
    with login_world(seconds=60) as world:
        yield world


@pytest.fixture
async def started(world: LoginWorld, tmp_path: Path) -> StdioServerParameters:
    """A gateway with a login that may only read."""
    async with gateway(world, tmp_path) as optimizer:
        await log_in(optimizer, world)
    _, config, *options = servers(tmp_path, world)
    return gateway_on_stdio(Path(str(config)), *options)


class User:
    """Opens the address that a client shows, and allows it or not."""

    def __init__(self, world: LoginWorld, action: Any = "accept", *, allows: bool = True) -> None:
        self.world = world
        self.action = action
        self.allows = allows
        self.asked: list[types.ElicitRequestURLParams] = []
        self.later: list[asyncio.Task[None]] = []

    async def elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        self.asked.append(params)
        if self.action == "accept":
            # A client says that its user agreed to open the page, not that the page is done.
            self.later.append(asyncio.create_task(self.log_in(params.url)))
        return types.ElicitResult(action=self.action)

    async def log_in(self, address: str) -> None:
        await asyncio.to_thread(self.world.control, deny=not self.allows)
        try:
            redirect = await asyncio.to_thread(self.world.browser, address)
        finally:
            await asyncio.to_thread(self.world.control, deny=False)
        page = await asyncio.to_thread(self.world.http.get, redirect)
        assert page.status_code == (200 if self.allows else 400)


def connected(started: StdioServerParameters, mode: str, user: User | None) -> AbstractAsyncContextManager[Client]:
    answers: Any = user.elicit if user is not None else None
    return Client(started, mode=mode, elicitation_callback=answers)


async def called(client: Client, seconds: float = 20) -> tuple[bool, str]:
    """Whether the call failed, and what it says."""
    await until_found(client, "write a note", "write_note")
    async with asyncio.timeout(seconds):
        result = await client.call_tool("call_tool", CALL)
    assert isinstance(result.content[0], types.TextContent)
    return bool(result.is_error), result.content[0].text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_user_logs_in_and_the_call_succeeds(
    world: LoginWorld, started: StdioServerParameters, mode: str
) -> None:
    user = User(world)
    async with connected(started, mode, user) as client:
        is_error, text = await called(client)
        assert (is_error, json.loads(text)["scopes"]) == (False, ["mcp:read", "mcp:write"])
        [asked] = user.asked
        assert asked.url.startswith(f"{world.issuer}/authorize?")
        assert asked.message == 'mcp-optimizer asks: Log in to the server "notes", and the call goes on.'
        # The next call asks nobody.
        assert not (await called(client))[0]
        assert len(user.asked) == 1
        await asyncio.gather(*user.later)


async def test_a_modern_client_is_asked_by_a_result_and_calls_again(
    world: LoginWorld, started: StdioServerParameters
) -> None:
    user = User(world)
    async with connected(started, "auto", user) as client:
        await until_found(client, "write a note", "write_note")
        asked = await client.session.call_tool("call_tool", CALL, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        [(key, request)] = (asked.input_requests or {}).items()
        assert isinstance(request, types.ElicitRequest)
        assert isinstance(request.params, types.ElicitRequestURLParams)
        await user.log_in(request.params.url)
        given: Any = {key: types.ElicitResult(action="accept")}
        result = await client.session.call_tool(
            "call_tool", CALL, input_responses=given, request_state=asked.request_state
        )
        assert not result.is_error
        assert "mcp:write" in str(result.content)


@pytest.mark.parametrize("mode", ["legacy", pytest.param("auto", marks=pytest.mark.full)])
async def test_a_client_that_cannot_show_an_address_gets_the_command(started: StdioServerParameters, mode: str) -> None:
    async with connected(started, mode, None) as client:
        is_error, text = await called(client)
        assert is_error
        assert ADVICE in text


@pytest.mark.parametrize("mode", ["legacy", pytest.param("auto", marks=pytest.mark.full)])
async def test_a_user_who_does_not_want_to_ends_the_call_with_the_command(
    world: LoginWorld, started: StdioServerParameters, mode: str
) -> None:
    user = User(world, allows=False)
    async with connected(started, mode, user) as client:
        for number, action in enumerate(["decline", "cancel", "accept"], 1):
            # Whoever accepts denies it on the page.
            user.action = action
            is_error, text = await called(client, 10)
            assert is_error
            assert ADVICE in text
            assert len(user.asked) == number
        await asyncio.gather(*user.later)
        result = await client.call_tool("call_tool", {"tool_name": "whoami", "parameters": {}})
        assert not result.is_error, "reading still works"
