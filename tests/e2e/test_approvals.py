"""A rule says `ask`: the person behind the client decides, in both eras and on both transports; the model cannot."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from tests.conftest import WriteServers, plain_server
from tests.e2e.running import gateway_at, said_in
from tests.e2e.test_relay import Person, client_on_stdio, text, until_up

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

RULES = """
[[rules]]
effect = "ask"
tool = "echo"
reason = "Echoes are loud."
"""


class Deciding(Person):
    """Says what it is told to say."""

    def __init__(self, *answers: str) -> None:
        super().__init__()
        self.answers = list(answers)

    async def elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params)
        answer = self.answers.pop(0)
        if answer == "no":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"approve_for": answer})


@asynccontextmanager
async def client_of(
    config: Path, transport: str, era: str, person: Person | None, mode: str = "search"
) -> AsyncIterator[Client]:
    settings = config.parent / "rules.toml"
    settings.write_text(RULES)
    options = ["--mode", mode, "--database", "none", "--encoder", "none", "--settings", str(settings)]
    callbacks: Any = person.callbacks() if person is not None else {}
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            client = client_on_stdio(config, era, options, callbacks)
        else:
            address = await stack.enter_async_context(gateway_at(config, *options))
            client = Client(address, mode=era, **callbacks)
        await stack.enter_async_context(client)
        await until_up(client, mode)
        yield client


async def echo(client: Client, value: str) -> str:
    """What the server says it was sent, or why it was not."""
    arguments = {"tool_name": "echo", "parameters": {"value": value}}
    return said(await client.call_tool("call_tool", arguments))


def said(result: Any) -> str:
    return text(result) if result.is_error else str(json.loads(text(result))["arguments"]["value"])


@pytest.mark.promise("ask-the-person")
@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_person_decides_and_the_call_is_made_or_not(
    write_servers: WriteServers, transport: str, era: str
) -> None:
    person = Deciding("no", "this call", "this tool for an hour")
    async with client_of(write_servers({"one": plain_server("one")}), transport, era, person) as client:
        refused = await echo(client, "first")
        assert "rule 1" in refused
        assert "Echoes are loud." in refused
        assert "first" not in refused
        assert [await echo(client, value) for value in ("second", "third", "fourth")] == ["second", "third", "fourth"]
        questions = [params.message for params in person.asked if isinstance(params, types.ElicitRequestFormParams)]
    assert len(questions) == 3
    assert questions[0].startswith('mcp-optimizer asks: On server "one", may "echo" be called for')
    assert '"value": "first"' in questions[0]


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_whoever_cannot_be_asked_does_not_find_the_tool_and_is_refused(
    write_servers: WriteServers, era: str
) -> None:
    async with client_of(write_servers({"one": plain_server("one")}), "stdio", era, None) as client:
        found = await client.call_tool(
            "find_tool", {"tool_description": "echo: say something back", "detail": "schema"}
        )
        assert "echo" not in {tool["name"] for tool in said_in(found)["tools"]}
        assert "a person's agreement" in await echo(client, "loud")
        # What a model says about it does not count.
        arguments = {"tool_name": "echo", "parameters": {"value": "loud"}, "confirm": True, "approve_for": "this call"}
        assert "a person's agreement" in text(await client.call_tool("call_tool", arguments))


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_question_is_the_same_where_tools_pass_unchanged(write_servers: WriteServers, era: str) -> None:
    person = Deciding("no", "this call")
    config = write_servers({"one": plain_server("one")})
    async with client_of(config, "http", era, person, mode="transparent") as client:
        assert "rule 1" in text(await client.call_tool("echo", {"value": "first"}))
        assert said(await client.call_tool("echo", {"value": "second"})) == "second"
    assert len(person.asked) == 2
