"""Questions about a stored script, and in the middle of one, reach the person behind the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.conftest import WriteServers
from tests.e2e.running import command, gateway_at, until_found
from tests.e2e.test_approvals import Deciding
from tests.e2e.test_relay import Person, client_on_stdio
from tests.e2e.test_script_questions import ASKS, servers, text

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

BOTH = pytest.mark.parametrize(
    ("transport", "era"), [("stdio", "legacy"), ("stdio", "auto"), ("http", "legacy"), ("http", "auto")]
)
RULE = '[[rules]]\neffect = "ask"\nserver = "scripts"\nreason = "It takes a while."\n'


@pytest.fixture
async def saved(
    write_servers: WriteServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, tuple[str, ...]]:
    """The server file and the options of a gateway with a stored script that asks twice."""
    monkeypatch.setenv("MCP_OPTIMIZER_SCRIPTS", "write")
    monkeypatch.setenv("MCP_OPTIMIZER_ENCODER", "none")
    config, options, source = servers(write_servers), ("--database", str(tmp_path / "c.db")), tmp_path / "asks.py"
    source.write_text(ASKS)
    words = ("--description", "Asks the person twice", "--may-change", "sleep")
    done = await command("script", "save", "asks_twice", source, *words, "--config", config, *options)
    assert done.code == 0, done.err
    return config, options


@asynccontextmanager
async def client_of(config: Path, transport: str, era: str, person: Person, *options: str) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            client = client_on_stdio(config, era, list(options), person.callbacks())
        else:
            address = await stack.enter_async_context(gateway_at(config, *options))
            client = Client(address, mode=era, **person.callbacks())
        await stack.enter_async_context(client)
        for query, name in (("echo", "echo"), ("ask", "ask"), ("asks the person twice", "asks_twice")):
            await until_found(client, query, name)
        yield client


async def asks_twice(client: Client) -> Any:
    return await client.call_tool("call_tool", {"tool_name": "asks_twice", "parameters": {}})


@BOTH
async def test_a_stored_script_goes_on_after_its_questions_are_answered(
    saved: tuple[Path, tuple[str, ...]], transport: str, era: str
) -> None:
    (config, options), person = saved, Person()
    async with client_of(config, transport, era, person, *options) as client:
        assert text(await asks_twice(client)) == "before True"
    assert len(person.asked) == 2


@BOTH
async def test_where_a_rule_says_ask_a_person_decides_before_the_script_runs(
    saved: tuple[Path, tuple[str, ...]], transport: str, era: str, tmp_path: Path
) -> None:
    (config, options), person = saved, Deciding("no", "this call", "this call")
    source, rules = tmp_path / "one.py", tmp_path / "rules.toml"
    source.write_text("plain.echo(value='x')['tool']")
    rules.write_text(RULE)
    words = ("--description", "Echoes once", "--may-change", "echo")
    done = await command("script", "save", "echoes", source, *words, "--config", config, *options)
    assert done.code == 0, done.err
    async with client_of(config, transport, era, person, *options, "--settings", str(rules)) as client:
        arguments = {"tool_name": "echoes", "parameters": {}}
        assert "It takes a while." in text(await client.call_tool("call_tool", arguments))
        assert text(await client.call_tool("call_tool", arguments)) == "echo"
    assert len(person.asked) == 2
