"""A legacy server asks a question in the middle of a call, and the modern client answers by calling again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from tests.conftest import WriteServers
from tests.e2e.running import gateway_at
from tests.e2e.test_relay import Person, client_on_stdio, text, until_up, upstream

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

OPTIONS = ["--database", "none", "--encoder", "none"]


class Refusing(Person):
    """Declines every question."""

    async def elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params)
        return types.ElicitResult(action="decline")


@asynccontextmanager
async def modern_client(
    config: Path, transport: str, person: Person, *options: str, mode: str = "transparent"
) -> AsyncIterator[Client]:
    given = ["--mode", mode, *OPTIONS, *options]
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            client = client_on_stdio(config, "auto", given, person.callbacks())
        else:
            address = await stack.enter_async_context(gateway_at(config, *given))
            client = Client(address, mode="auto", **person.callbacks())
        await stack.enter_async_context(client)
        await until_up(client, mode)
        yield client


@asynccontextmanager
async def in_front(
    write_servers: WriteServers, transport: str, person: Person, server: str, *options: str, mode: str = "transparent"
) -> AsyncIterator[Client]:
    """A modern client of a gateway in front of a legacy server."""
    async with (
        upstream(server, "legacy") as entry,
        modern_client(write_servers({"old": entry}), transport, person, *options, mode=mode) as client,
    ):
        yield client


async def question(client: Client, tool: str, arguments: dict[str, Any]) -> types.InputRequiredResult:
    """Call a tool, and return its question instead of letting the client answer it."""
    result = await client.session.call_tool(tool, arguments, allow_input_required=True)
    assert isinstance(result, types.InputRequiredResult)
    return result


async def answered(client: Client, tool: str, arguments: dict[str, Any], state: str | None, action: Any) -> Any:
    given: Any = {"q1": types.ElicitResult(action=action)}
    return await client.session.call_tool(
        tool, arguments, input_responses=given, request_state=state, allow_input_required=True
    )


@pytest.mark.parametrize(("transport", "server"), [("stdio", "stdio"), ("http", "http"), ("http", "stdio")])
async def test_everything_can_be_asked_for(write_servers: WriteServers, transport: str, server: str) -> None:
    person = Person()
    told: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert (progress, total) == (len(told) + 1, 2)
        told.append(message)

    async with in_front(write_servers, transport, person, server) as client:
        answer = text(await client.call_tool("test_elicitation", {"message": "Who are you?"}))
        assert answer == 'User response: action=accept, content={"username": "Ada", "email": "Ada"}'
        assert text(await client.call_tool("ask_url", {})) == "Visited: accept"
        asked = person.asked[-1]
        assert isinstance(asked, types.ElicitRequestURLParams)
        assert asked.url == "https://example.com/login"
        assert text(await client.call_tool("test_sampling", {"prompt": "Hi"})) == "LLM response: Ada heard: Hi"
        assert "file:///home/Ada" in text(await client.call_tool("list_roots", {}))
        twice = await client.call_tool("ask_twice", {}, progress_callback=on_progress)
        assert text(twice) == "accept Ada; accept Ada"
        assert twice.structured_content == {"answers": ["accept Ada", "accept Ada"]}
        assert (twice.meta or {})["performance"]["cachedResult"] is False
        assert told == ["Who are you?", "Are you sure?"]
        read = await client.read_resource("test://template/asked/data")
        assert isinstance(read.contents[0], types.TextResourceContents)
        assert json.loads(read.contents[0].text) == {"id": "Ada"}
        prompt = await client.get_prompt("test_input_required_result_prompt")
        assert isinstance(prompt.messages[0].content, types.TextContent)
        assert prompt.messages[0].content.text == "In the context of Ada"


async def test_a_user_may_decline(write_servers: WriteServers) -> None:
    async with in_front(write_servers, "stdio", Refusing(), "stdio") as client:
        answer = text(await client.call_tool("test_elicitation", {"message": "Who?"}))
        assert answer == "User response: action=decline, content=null"


async def test_calls_of_found_and_of_registered_tools_can_ask_and_are_one_call_in_the_accounts(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    database = tmp_path / "catalog.db"
    options = ["--database", str(database), "--profile", "full"]
    async with in_front(write_servers, "http", Person(), "stdio", *options, mode="search") as client:
        found = await client.call_tool("call_tool", {"tool_name": "ask_twice", "parameters": {}})
        assert text(found) == "accept Ada; accept Ada"
        assert (found.meta or {})["mcp-optimizer/tool"]["server"] == "old"
        assert text(await client.call_tool("ask_twice", {})) == "accept Ada; accept Ada"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT server, tool, outcome FROM event WHERE kind = 'call'").fetchall()
    assert rows == [("old", "ask_twice", "ok")] * 2


async def test_a_question_that_nobody_answers_is_cancelled_and_its_call_too(write_servers: WriteServers) -> None:
    async with in_front(write_servers, "stdio", Person(), "stdio", "--answer-timeout", "0.3") as client:
        asked = await question(client, "ask_with_pid", {})
        async with asyncio.timeout(10):
            while text(await client.call_tool("was_cancelled", {})) != '["ask_with_pid"]':
                await asyncio.sleep(0.05)
        assert text(await client.call_tool("was_answered", {})) == '["cancel"]'
        late = await answered(client, "ask_with_pid", {}, asked.request_state, "accept")
        assert late.is_error
        assert "Call again without inputResponses" in text(late)


async def test_an_answer_is_taken_once_and_only_from_the_client_that_was_asked(write_servers: WriteServers) -> None:
    async with AsyncExitStack() as stack:
        entry = await stack.enter_async_context(upstream("stdio", "legacy"))
        config = write_servers({"old": entry})
        # A parked call does not count as in flight, and a gateway that stops does not wait for it.
        options = ["--mode", "transparent", *OPTIONS, "--max-in-flight", "1", "--max-waiting", "0"]
        address = await stack.enter_async_context(gateway_at(config, *options, "--shutdown-timeout", "100"))
        ada, bob = [
            await stack.enter_async_context(
                Client(
                    address,
                    mode="auto",
                    client_info=types.Implementation(name=name, version="1"),
                    **Person(name).callbacks(),
                )
            )
            for name in ("ada", "bob")
        ]
        await until_up(ada)
        state = (await question(ada, "ask_with_pid", {})).request_state
        for client, tool, given in (
            (bob, "ask_with_pid", state),
            (ada, "ask_twice", state),
            (ada, "ask_with_pid", "made up"),
        ):
            refused = await answered(client, tool, {}, given, "accept")
            assert refused.is_error
            assert "Call again without inputResponses" in text(refused)
        assert text(await answered(ada, "ask_with_pid", {}, state, "accept")) == "Answered: accept"
        assert (await answered(ada, "ask_with_pid", {}, state, "accept")).is_error
        with pytest.raises(MCPError, match="Call again without inputResponses") as unknown:
            await ada.session.read_resource("test://static-text", request_state="made up")
        assert unknown.value.error.code == types.INVALID_PARAMS
        await question(ada, "ask_with_pid", {})


@pytest.mark.parametrize("mode", ["transparent", "search"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_server_that_dies_while_it_waits_is_named(
    write_servers: WriteServers, transport: str, mode: str
) -> None:
    name, arguments = ("ask_with_pid", {}) if mode == "transparent" else ("call_tool", {"tool_name": "ask_with_pid"})
    async with in_front(write_servers, transport, Person(), "stdio", mode=mode) as client:
        asked = await question(client, name, arguments)
        [request] = (asked.input_requests or {}).values()
        assert isinstance(request, types.ElicitRequest)
        os.kill(int(request.params.message.rpartition(" ")[2]), signal.SIGKILL)
        await asyncio.sleep(0.3)
        lost = await answered(client, name, arguments, asked.request_state, "accept")
        assert lost.is_error
        assert "The server 'old' stopped in the middle of the call" in text(lost)
