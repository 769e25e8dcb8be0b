"""Whatever part of a reply a client gives to its model, the model has all of it, and reads it once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from mcp_optimizer.access.policy.policy import Policy, RuleBook
from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.kept_results import KeptResults
from mcp_optimizer.domain.caller import Effect, Risk, Rule
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.permissions import Permissions, Views
from mcp_optimizer.results.calls import ResultOptions, Treatment
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.results.result_store import ResultStore
from mcp_optimizer.scripts.runner import ScriptRunner
from mcp_optimizer.serving.relay.server import Relay
from mcp_optimizer.serving.server import ServerOptions, build_server
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import RecordingPool, live_catalog, mcp_tool, running

COUNT = TokenCounter().count_tokens
ROWS = [{"id": number, "name": f"Person {number}", "town": "Oslo"} for number in range(640)]
FEW = {"rows": ROWS[:3], "total": 3}


def text(said: str, **fields: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **fields}


def both(value: Any) -> dict[str, Any]:
    return text(json.dumps(value), structuredContent=value)


ANSWERS: dict[str, dict[str, Any]] = {
    "few": both(FEW),
    "many": both({"rows": ROWS}),
    "wrapped": text("The town is Oslo.", structuredContent={"result": "The town is Oslo."}),
    "each": {
        "content": [{"type": "text", "text": json.dumps(row)} for row in ROWS[:3]],
        "structuredContent": {"result": ROWS[:3]},
    },
    "summed": text("Found 640 people.", structuredContent={"rows": ROWS}),
    "broken": text("No such town.", isError=True, structuredContent={"result": "No such town."}),
    "remove": text("never called"),
}
TOOLS = [
    mcp_tool(name, f"Answer with {name} people", outputSchema={"type": "object"}, annotations={"readOnlyHint": True})
    for name in ANSWERS
]


def block_texts(result: Mapping[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"]]


def as_text(result: Mapping[str, Any]) -> str:
    return "\n".join(block_texts(result))


def as_structure(result: Mapping[str, Any]) -> str:
    structure = result.get("structuredContent")
    return as_text(result) if structure is None else json.dumps(structure, separators=(",", ":"))


def as_both(result: Mapping[str, Any]) -> str:
    structure = result.get("structuredContent")
    said = [] if structure is None else [json.dumps(structure, separators=(",", ":"))]
    return "\n".join([as_text(result), *said])


def as_everything(result: Mapping[str, Any]) -> str:
    return as_both(result) + (json.dumps(result["_meta"]) if "_meta" in result else "")


def as_gemini(result: Mapping[str, Any]) -> str:
    return (as_everything if result.get("isError") else as_text)(result)


Reader = Callable[[Mapping[str, Any]], str]
READERS: dict[str, tuple[str, Reader]] = {
    "Claude Code": ("claude-code", as_structure),
    "Codex": ("codex-mcp-client", as_structure),
    "Vibe": ("mcp", as_structure),
    "fast-agent": ("fast-agent-mcp", as_structure),
    "Copilot": ("copilot-cli", as_both),
    "Qwen": ("qwen-cli-mcp-client-lab", as_both),
    "Kimi": ("kimi-code", as_everything),
    "ADK": ("google-adk", as_everything),
    "Gemini": ("gemini-cli-mcp-client", as_gemini),
    "opencode": ("opencode", as_text),
    "Continue": ("continue-cli-client", as_text),
    "unknown, text": ("some client", as_text),
    "unknown, structure": ("some client", as_structure),
    "unknown, both": ("some client", as_both),
}


class Reading:
    """A client, and what its model reads of each reply."""

    def __init__(self, name: str, client: Client, sent: list[dict[str, Any]], reader: Reader) -> None:
        self.name = name
        self._client = client
        self._sent = sent
        self._reader = reader

    async def of(self, name: str, directly: int = 0, **arguments: Any) -> str:
        """What the model reads; at most a tenth more than the text of the reply, or than it would read directly."""
        await self._client.call_tool(name, arguments)
        read, said = self._reader(self._sent[-1]), as_text(self._sent[-1])
        assert COUNT(read) <= max(1.1 * COUNT(said), directly), read
        return read

    @property
    def last(self) -> dict[str, Any]:
        """The last reply, as sent."""
        return self._sent[-1]

    async def called(self, tool: str, **more: Any) -> str:
        directly = 0 if self.is_known else COUNT(self._reader(ANSWERS[tool]))
        return await self.of("call_tool", directly, tool_name=tool, parameters={}, **more)

    @property
    def is_known(self) -> bool:
        """Whether it is known what this client's model reads; a program that is not known gets what a server sends."""
        return self.name not in ("mcp", "some client")


@asynccontextmanager
async def reading(client: str, reader: Reader, max_tokens: int = 500) -> AsyncIterator[Reading]:
    database, counter = await open_database(None), TokenCounter()

    async def opened() -> KeptResults:
        return KeptResults(database)

    options = ResultOptions(Treatment(max_tokens=max_tokens))
    results = Results(Estimator("auto", counter), ResultStore(opened), options)
    pool = RecordingPool(lambda _server, params: ANSWERS[params["name"]])
    deny = Rule(Effect.DENY, tool="remove", reason="People are removed by hand.")
    permissions = Permissions(Views(Policy(RuleBook([deny]), {"remove": Risk.WRITE})))
    catalog = await live_catalog(running("town", *TOOLS))
    gateway = Gateway(catalog, pool, ToolForms(counter), results, 5, permissions=permissions)
    scripts = ScriptRunner(gateway, ScriptMode.WRITE)
    server = build_server(gateway, "1", Relay(pool, dict), ServerOptions(scripts=ScriptMode.WRITE), scripts=scripts)
    sent: list[dict[str, Any]] = []

    async def remember(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "tools/call" and isinstance(result, dict):
            sent.append(result)
        return result

    server.middleware.insert(0, remember)
    info = types.Implementation(name=client, version="1")
    try:
        async with Client(server, mode="legacy", client_info=info) as opened_client:
            yield Reading(client, opened_client, sent, reader)
    finally:
        await scripts.close()
        await database.close()


def id_in(read: str) -> str:
    return read.replace("\\", "").partition('read_result(result_id="')[2].partition('"')[0]


@pytest.mark.cases_in_check(3)
@pytest.mark.requirement("A6", "SC-001", "SC-004", "C5")
@pytest.mark.parametrize("who", READERS)
async def test_every_reader_has_all_of_every_reply_once(who: str) -> None:
    async with reading(*READERS[who]) as model:
        found = await model.of("find_tool", tool_description="answer with few people")
        assert "few(" in found
        assert "tokens" in found.splitlines()[-1]
        few, wrapped, each = await model.called("few"), await model.called("wrapped"), await model.called("each")
        assert all(f"Person {number}" in said for number in range(3) for said in (few, each))
        assert "The town is Oslo." in wrapped
        if model.is_known:
            assert json.loads(few) == FEW
            assert wrapped == "The town is Oslo."
            assert [json.loads(row) for row in each.splitlines()] == ROWS[:3]

        for tool in ("many", "summed"):
            cut = await model.called(tool)
            assert "[Cut: " in cut
            page = await model.of("read_result", result_id=id_in(cut), search="Person 639")
            assert "Person 639" in page

        selected = await model.called("many", select="rows[].id")
        assert "638" not in selected.splitlines()[0]
        assert id_in(selected)
        wrong = await model.called("few", select="rows[0].nothing.here")
        assert "select matched nothing" in wrong
        assert "Person 2" in wrong

        assert "No such town." in await model.called("broken")
        assert "People are removed by hand." in await model.called("remove")
        listed = json.loads(await model.of("list_tools"))
        assert "few" in {tool["name"] for tool in listed["tools"]}
        assert (await model.of("run_script", script="len(town.many()['rows'])")) == "640"


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("who", READERS)
async def test_no_part_of_a_result_with_a_notice_says_less_than_another(who: str) -> None:
    async with reading(*READERS[who], max_tokens=20_000) as model:
        noted = await model.called("summed", select="rows[0].nothing.here")
        assert "select matched nothing" in noted


@pytest.mark.parametrize("name", ["opencode", "some program"])
async def test_a_program_and_a_client_that_reads_the_text_alone_still_get_the_structure(name: str) -> None:
    async with reading(name, as_text) as client:
        await client.called("few")
        assert client.last["structuredContent"] == FEW


async def test_what_only_the_structure_says_is_never_left_out() -> None:
    for name in {name for name, _ in READERS.values()}:
        async with reading(name, as_text, max_tokens=50_000) as client:
            await client.called("summed")
            assert client.last["structuredContent"] == {"rows": ROWS}
