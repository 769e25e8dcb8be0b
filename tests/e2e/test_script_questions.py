"""A question in the middle of a script reaches the person behind the client, and the script goes on: both eras, both
transports, servers of both eras. A restart in between is told, and nothing is resumed from what a client sends.
"""

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
from tests.e2e.running import command, gateway_at
from tests.e2e.test_relay import Person, client_on_stdio, until_up
from tests.warm import warm_server

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ASKING = Path(__file__).parents[1] / "servers" / "asking.py"

ASKS = """
before = plain.echo(value="before")["arguments"]["value"]
plain.sleep(seconds=0)
form = {"type": "object", "properties": {"who": {"type": "string"}}}
answers = [str(asking.ask(method="elicitation/create", params={"message": m, "requestedSchema": form})) for m in "ab"]
print(before, all("Ada" in answer for answer in answers))
"""
MAY = {"may_change": ["sleep"]}


def servers(write_servers: WriteServers, *options: str) -> Path:
    asking = warm_server(ASKING, *options)
    return write_servers({"asking": asking, "plain": plain_server("plain")})


@asynccontextmanager
async def client_of(config: Path, transport: str, era: str, person: Person, *options: object) -> AsyncIterator[Client]:
    given = [*map(str, ("--scripts", "write", "--encoder", "none", *options))]
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            client = client_on_stdio(config, era, given, person.callbacks())
        else:
            address = await stack.enter_async_context(gateway_at(config, *given))
            client = Client(address, mode=era, **person.callbacks())
        await stack.enter_async_context(client)
        await until_up(client, "search")
        while len(json.loads(text(await client.call_tool("list_tools", {})))["tools"]) < 10:
            pass
        yield client


def text(result: Any) -> str:
    first = result.content[0]
    assert isinstance(first, types.TextContent)
    return first.text


@pytest.mark.parametrize("server_era", [(), ("--era", "modern")], ids=["legacy server", "modern server"])
@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_script_goes_on_after_its_questions_are_answered(
    write_servers: WriteServers, transport: str, era: str, server_era: tuple[str, ...]
) -> None:
    person = Person()
    config = servers(write_servers, *server_era)
    async with client_of(config, transport, era, person, "--database", "none") as client:
        result = await client.call_tool("run_script", {"script": ASKS, **MAY})
    assert text(result) == "before True"
    assert [asked.message for asked in person.asked] == [f'The server "asking" asks: {letter}' for letter in "ab"]


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_person_is_asked_before_a_script_calls_what_a_rule_says_to_ask_about(
    write_servers: WriteServers, transport: str, era: str, tmp_path: Path
) -> None:
    class Approving(Person):
        async def elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            self.asked.append(params)
            return types.ElicitResult(action="accept", content={"approve_for": "this call"})

    settings = tmp_path / "rules.toml"
    settings.write_text('[[rules]]\neffect = "ask"\ntool = "echo"\n')
    person = Approving()
    options = ("--database", "none", "--settings", settings)
    async with client_of(servers(write_servers), transport, era, person, *options) as client:
        result = await client.call_tool("run_script", {"script": "plain.echo(value='x')['tool']"})
    assert len(person.asked) == 1
    assert text(result) == "echo", text(result)


async def first_question(client: Client, script: str) -> types.InputRequiredResult:
    """Run a script, and return its question instead of letting the client answer it."""
    asked = await client.session.call_tool("run_script", {"script": script, **MAY}, allow_input_required=True)
    assert isinstance(asked, types.InputRequiredResult)
    return asked


async def go_on(client: Client, script: str, state: str | None) -> str:
    given: Any = {"q1": types.ElicitResult(action="accept", content={"who": "Ada"})}
    arguments = {"script": script, **MAY}
    return text(await client.session.call_tool("run_script", arguments, input_responses=given, request_state=state))


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_after_a_restart_the_client_is_told_what_its_script_had_done(
    write_servers: WriteServers, transport: str, tmp_path: Path
) -> None:
    config, database = servers(write_servers), ("--database", tmp_path / "catalog.db")
    async with client_of(config, transport, "auto", Person(), *database) as client:
        asked = await first_question(client, ASKS)
    async with client_of(config, transport, "auto", Person(), *database) as client:
        told = await go_on(client, ASKS, asked.request_state)
    assert told == (
        "The script was waiting when the gateway was restarted, and ended. It had made 3 calls. 1 of them may have "
        "changed something: look before you run it again."
    )


async def test_a_forged_or_repeated_answer_resumes_nothing(write_servers: WriteServers) -> None:
    async with client_of(servers(write_servers), "http", "auto", Person(), "--database", "none") as client:
        once = ASKS.replace('"ab"', '"a"')
        asked = await first_question(client, once)
        assert asked.request_state is not None
        name, life, calls, changes, mac = asked.request_state.split(".")
        for forged in (
            f"{name}.{life}.{calls}.0.{mac}",
            f"{name}.{life}.{calls}.{changes}",
            name,
            "",
            "....",
            "x" * 100_000,
            "é.1.1.1.1",
        ):
            assert "waits for" in await go_on(client, once, forged), forged
        assert "waits for" in await go_on(client, "print('another script')", asked.request_state)
        assert await go_on(client, once, asked.request_state) == "before True"
        assert "waited too long" in await go_on(client, once, asked.request_state)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_stored_script_that_a_rule_asks_about_is_asked_about_once_and_then_asks_its_own_questions(
    write_servers: WriteServers, transport: str, tmp_path: Path
) -> None:
    class Approving(Person):
        async def elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            self.asked.append(params)
            is_rule = "approve_for" in params.model_dump_json()
            content: Any = {"approve_for": "this call"} if is_rule else {"who": "Ada"}
            return types.ElicitResult(action="accept", content=content)

    settings, source = tmp_path / "rules.toml", tmp_path / "asks.py"
    settings.write_text('[[rules]]\neffect = "ask"\ntool = "asks"\n')
    source.write_text(ASKS)
    config, person = servers(write_servers), Approving()
    options = ("--database", tmp_path / "catalog.db", "--settings", settings)
    kept = ("--config", config, "--scripts", "write", "--encoder", "none", *options)
    saved = await command("script", "save", "asks", source, "--description", "Asks", "--may-change", "sleep", *kept)
    assert saved.code == 0, saved.err
    async with client_of(config, transport, "auto", person, *options) as client:
        while "asks" not in text(await client.call_tool("list_tools", {"server": "scripts"})):
            pass
        result = await client.call_tool("call_tool", {"tool_name": "asks", "parameters": {}})
    assert text(result) == "before True"
    assert ["approve_for" in asked.model_dump_json() for asked in person.asked] == [True, False, False]
