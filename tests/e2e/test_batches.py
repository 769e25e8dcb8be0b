"""One call with many arguments, attacked: the outcome of each element is right, on both transports and in both eras."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from tests.conftest import WriteServers
from tests.e2e.running import gateway_at
from tests.e2e.test_relay import Person, client_on_stdio, until_up
from tests.waiting import until
from tests.warm import warm_server

SERVER = Path(__file__).parents[1] / "servers" / "each.py"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

RULES = """
[[rules]]
effect = "ask"
tool = "agree"
"""
EVERYWHERE = [(transport, era) for transport in ("stdio", "http") for era in ("legacy", "auto")]


class Deciding(Person):
    """Agrees to what the gateway asks, once; gives servers a name."""

    def __init__(self) -> None:
        super().__init__("Ada")
        self.agrees = True

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        if not params.message.startswith("mcp-optimizer asks"):
            return await super().elicit(context, params)
        self.asked.append(params)
        return types.ElicitResult(action="accept" if self.agrees else "decline")


@dataclass
class World:
    """A client of a gateway, the person behind it, and what reached the server."""

    client: Client
    person: Deciding
    calls: Path

    @property
    def reached(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    async def each(self, tool: str, *values: Any, **more: Any) -> tuple[bool, list[str]]:
        """Whether a batch failed as a whole, and its texts. A value that is no text is the whole element."""
        items = [{"value": value} if isinstance(value, str) else value for value in values]
        result = await self.client.call_tool("call_tool", {"tool_name": tool, "parameters": items, **more})
        return bool(result.is_error), [block.text for block in result.content if isinstance(block, types.TextContent)]


@asynccontextmanager
async def world(write_servers: WriteServers, transport: str, era: str, *options: str) -> AsyncIterator[World]:
    folder = write_servers({}).parent
    config = write_servers({"each": warm_server(SERVER, folder / "calls")})
    (folder / "rules.toml").write_text(RULES)
    given = ["--database", "none", "--encoder", "none", "--settings", str(folder / "rules.toml"), *options]
    person = Deciding()
    callbacks: Any = person.callbacks()
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            client = client_on_stdio(config, era, given, callbacks)
        else:
            client = Client(await stack.enter_async_context(gateway_at(config, *given)), mode=era, **callbacks)
        await stack.enter_async_context(client)
        await until_up(client, "search")
        yield World(client, person, folder / "calls")


@pytest.mark.parametrize(("transport", "era"), EVERYWHERE)
async def test_each_element_has_its_own_outcome(write_servers: WriteServers, transport: str, era: str) -> None:
    async with world(write_servers, transport, era, "--call-timeout", "1.5") as here:
        failed, [said] = await here.each("look", "a", "b", "c")
        table = json.loads(said)
        assert (failed, table["columns"]) == (False, ["tool", "said", "length"])
        assert [row[1] for row in table["rows"]] == ["a", "b", "c"]
        assert (await here.each("look", "a", "bc", select="length"))[1] == ["[1,2]"]
        assert (await here.each("look", "a", "bc", select="sum([].length)"))[1] == ["3"]

        # One asks its user, one fails, one is hostile, one never answers: the others are not touched.
        hostile: list[Any] = [{"value": 1}, 7, ["a"], {"value": {"$ref": "#"}}]
        failed, [said, note] = await here.each("look", "a", "ask", "fail", *hostile, "hang", "b")
        values = json.loads(said)
        assert not failed
        assert [values[at].get("said") for at in (0, 1, 8)] == ["a", "Ada", "b"], said
        assert [asked.message for asked in here.person.asked] == ['The server "each" asks: Who are you?']
        assert values[2] == {"error": "it did not work"}
        assert [at for at in range(9) if "error" in values[at]] == [2, 3, 4, 5, 6, 7], said
        assert "9 calls: 3 done; [2] failed; [3] to [6] not made; [7] unsure" in note

        # What changes something runs in order, and ends where it is not known what happened.
        failed, [said, note] = await here.each("change", "first", "fail", "second", "hang", "never")
        assert "2 done; [1] failed; [4] not made; [3] unsure, look before you repeat" in note
        assert [line for line in here.reached if line.startswith("change")] == [
            *("change first", "change fail", "change second", "change hang"),
        ]

        # A long result is cut within one budget, and nothing is lost.
        failed, texts = await here.each("look", "large", "large", "a", select="said")
        assert sum(map(len, texts)) < 100_000
        assert any("read_result(" in said for said in texts[1:]), texts[1:]

        before = here.reached
        for wrong, why in (([{"value": "a"}] * 10_000, "at most 200"), ([], "an empty list")):
            failed, [said] = await here.each("look", *wrong)
            assert failed
            assert why in said
        assert here.reached == before


@pytest.mark.parametrize(("transport", "era"), EVERYWHERE)
async def test_a_person_is_asked_once_about_all_and_sees_each(
    write_servers: WriteServers, transport: str, era: str
) -> None:
    async with world(write_servers, transport, era) as here:
        failed, [said] = await here.each("agree", "one", "ask", "two", select="said")
        assert (failed, json.loads(said)) == (False, ["one", "Ada", "two"])
        [asked, _name] = here.person.asked
        assert '"agree" be called 3 times' in asked.message
        assert [
            f'Arguments {number}: "value": "{value}"' in asked.message for number, value in [(1, "one"), (3, "two")]
        ]
        here.person.agrees = False
        failed, [said] = await here.each("agree", "three", "four")
        assert failed
        assert "person" in said
        failed, [said] = await here.each("agree", *map(str, range(150)))
        assert "Give fewer" in said
        assert here.reached == ["agree one", "agree ask", "agree two"]


@pytest.mark.parametrize(("transport", "era"), EVERYWHERE)
async def test_a_batch_that_is_cancelled_or_whose_client_leaves_makes_no_further_call(
    write_servers: WriteServers, transport: str, era: str, tmp_path: Path
) -> None:
    reached = tmp_path / "calls"
    try:
        async with world(write_servers, transport, era) as here:
            calling = asyncio.create_task(here.each("change", "a", "hang", "never"))
            await until(lambda: "change hang" in here.reached)
            calling.cancel()
            assert not (await here.each("change", "b"))[0]
            leaving = asyncio.create_task(here.each("look", *["hang"] * 20))
            await until(lambda: here.reached.count("look hang") == 16)
            leaving.cancel()
            assert not (await here.each("look", "last"))[0]
    except* (anyio.ClosedResourceError, anyio.BrokenResourceError):
        # The SDK's client fails if the end of a cancelled request arrives while it closes.
        pass
    lines = reached.read_text().splitlines()
    assert [line for line in lines if line.startswith("change")] == ["change a", "change hang", "change b"]
    assert lines.count("look hang") == 16


@pytest.mark.parametrize(("transport", "era"), EVERYWHERE)
async def test_a_rate_holds_for_each_element(write_servers: WriteServers, transport: str, era: str) -> None:
    async with world(write_servers, transport, era, "--calls-per-minute", "12") as here:
        failed, [said, note] = await here.each("change", *map(str, range(20)))
        made = len(here.reached)
        assert not failed
        assert 1 < made < 20
        assert f"{made} done; [{made}] to [19] not made" in note
        assert "Too many calls" in json.loads(said)[made]["error"]
