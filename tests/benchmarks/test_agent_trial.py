"""The agent trial's client shows what a model would read, and its score counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from benchmarks.agent_trial.bookings import all_bookings
from benchmarks.agent_trial.check import AWAY, MORNINGS, SPENT, STEPS, TAGGED, twelve
from benchmarks.agent_trial.content import INVOICES, PLUGINS, git, write_bookings, write_files, write_repository
from benchmarks.agent_trial.prompt import TASKS, definition, definitions, tasks
from benchmarks.agent_trial.score import read_log, report, score
from benchmarks.agent_trial.session import CALLS, LAST, Conversation, reply_of
from benchmarks.paths import ROOT
from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

from mcp_optimizer_demo.web.site import load_site

ANSWERS = TASKS["thirty"][0].with_name("answers.md")


class Name(BaseModel):
    """What the server wants to know."""

    name: str


def shop() -> MCPServer:
    server = MCPServer("shop")

    @server.tool()
    def count(words: list[str]) -> dict[str, int]:
        return {"words": len(words)}

    @server.tool()
    def refuse() -> str:
        raise ToolError("Not today.")

    @server.tool()
    async def greet(ctx: Context[Any, Any]) -> str:
        answer = await ctx.elicit("Who are you?", Name)
        return f"Hello {answer.data.name}" if answer.action == "accept" else answer.action

    @server.tool()
    async def wait() -> str:
        await anyio.sleep_forever()
        return "never"

    return server


class Player:
    """A model that plays, and its log."""

    def __init__(self, client: Client, conversation: Conversation, log: Path) -> None:
        self._client, self._conversation, self._log = client, conversation, log

    async def act(self, tool: str, arguments: dict[str, Any] | None = None) -> str:
        return await self._conversation.exchange(self._client, tool, arguments or {})

    @property
    def log(self) -> list[dict[str, Any]]:
        return read_log(self._log)


@asynccontextmanager
async def playing(folder: Path, limit: float = 10) -> AsyncIterator[Player]:
    log = folder / "log.jsonl"
    conversation = Conversation(log, limit)
    async with Client(shop(), mode="legacy", elicitation_callback=conversation.asked) as client:
        yield Player(client, conversation, log)


async def test_a_reply_is_the_text_of_the_result_and_goes_to_the_log(tmp_path: Path) -> None:
    async with playing(tmp_path) as player:
        reply = await player.act("count", {"words": ["a", "b"]})
        assert json.loads(reply) == {"words": 2}
        (row,) = player.log
        assert (row["tool"], row["arguments"], row["reply"]) == ("count", {"words": ["a", "b"]}, reply)
        assert (tmp_path / LAST).read_text() == reply


async def test_a_refusal_and_an_unknown_tool_read_as_errors(tmp_path: Path) -> None:
    async with playing(tmp_path) as player:
        assert (await player.act("refuse")).startswith("ERROR: ")
        assert "Not today." in await player.act("refuse")
        assert (await player.act("nothing")).startswith("ERROR: ")


async def test_a_question_in_the_middle_of_a_call_is_shown_and_its_answer_continues_the_call(tmp_path: Path) -> None:
    async with playing(tmp_path) as player:
        question = await player.act("greet")
        assert question.startswith("QUESTION: Who are you?")
        assert '"required":["name"]' in question
        assert await player.act("count", {"words": []}) == "ERROR: A question is open. Answer it first."
        assert await player.act("answer", {"action": "accept", "content": {"name": "Ada"}}) == "Hello Ada"
        assert await player.act("answer", {"action": "decline"}) == "ERROR: No question is open."
        assert [row["tool"] for row in player.log] == ["greet", "count", "answer", "answer"]


async def test_a_call_that_takes_too_long_reads_as_an_error(tmp_path: Path) -> None:
    async with playing(tmp_path, limit=0.05) as player:
        assert await player.act("wait") == "ERROR: The call took longer than 0.05 seconds."


def test_every_request_reads_the_definitions_and_all_that_came_before() -> None:
    exchanges = [
        {"tool": "find_tool", "arguments": {}, "reply": "x" * 10},
        {"tool": "call_tool", "arguments": {}, "reply": "ERROR: no"},
    ]
    asked = [len(json.dumps({"name": row["tool"], "arguments": {}})) for row in exchanges]
    found = score(exchanges, 100, len)
    first, last = 100 + asked[0] + 10, 100 + sum(asked) + 10 + 9
    assert (found.requests, found.errors, found.context) == (3, 1, last)
    assert found.read_in_all == 100 + first + last
    assert found.find_share == 10 / last
    assert found.searches == [("{}", 10)]
    assert f"{last:,}" in report(found, 100)


async def test_definitions_are_the_instructions_and_a_line_for_each_tool() -> None:
    async with Client(shop()) as client:
        tools = (await client.list_tools()).tools
    first, *lines = definitions("Read this.", tools).splitlines()
    assert first == "Read this."
    assert lines == [definition(tool) for tool in tools]
    assert json.loads(lines[0])["inputSchema"] == tools[0].input_schema


def test_each_task_has_an_answer() -> None:
    numbers = [line.partition(".")[0] for line in tasks("all").splitlines() if line[:1].isdigit()]
    rows = [line.split("|")[1].strip() for line in ANSWERS.read_text().splitlines() if line.startswith("| ")]
    assert numbers == [str(number) for number in range(1, 43)]
    assert rows == ["task", *numbers]


def test_a_player_gets_the_thirty_tasks_or_the_twelve_or_all() -> None:
    assert tasks("thirty").splitlines()[2].startswith("1. ")
    assert tasks("twelve").splitlines()[2].startswith("31. ")
    thirty, twelve, every = (tasks(which).splitlines() for which in ("thirty", "twelve", "all"))
    assert every == [*thirty, *twelve[2:]]


def test_calls_of_a_list_that_failed_are_errors() -> None:
    outcomes = {CALLS: {"outcomes": {"done": 3, "failed": 1, "not made": 2}}}
    reply = reply_of(types.CallToolResult(content=[types.TextContent(text="[]")], _meta=outcomes))
    assert (reply.text, reply.failed) == ("[]", 3)
    rows = [{"tool": "call_tool", "arguments": {}, "reply": reply.text, "failed": reply.failed}]
    assert score(rows, 0, len).errors == 3


def a_world(folder: Path) -> Path:
    """What the twelve tasks that change something are about."""
    (folder / "files").mkdir()
    write_files(folder / "files")
    write_repository(folder / "repo")
    write_bookings(folder / "bookings.json")
    return folder


def done_by_hand(world: Path) -> None:
    """Do what the twelve tasks ask for."""
    (world / "files" / "sea").mkdir()
    for name in ("compass", "knots", "lighthouses", "maps", "tides"):
        (world / "files" / "sea" / f"{name}.md").write_text(load_site().page(name).markdown)
    paid = world / "files" / "invoices" / "paid"
    paid.mkdir()
    for at, (_, _, is_paid) in enumerate(INVOICES, 2401):
        name = f"invoice-{at}.txt"
        if is_paid:
            (paid.parent / name).rename(paid / name)
    for name, is_changed in PLUGINS.items():
        if is_changed:
            git(world / "repo" / "plugins" / name, "commit", "-qam", "Save work in progress")
    booked = [row for row in all_bookings() if not (row["booked_by"] == "Lin Zhao" and row["date"] in AWAY)]
    for day, time in MORNINGS.items():
        row = {"booking_id": f"B-3{day}", "room": "Borealis", "date": f"2026-12-{day}", "time": time, "people": 4}
        booked.append({**row, "title": "Morning round", "booked_by": "Trial"})
    (world / "bookings.json").write_text(json.dumps(booked))


def noted(world: Path, tool: str, answer: Any = None, **arguments: Any) -> None:
    with (world / "kanban.jsonl").open("a") as lines:
        lines.write(f"{json.dumps({'tool': tool, 'arguments': arguments, 'answer': answer})}\n")


def test_nothing_is_done_in_a_fresh_world_and_all_once_it_was_done(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert [task for task, is_done in twelve(world) if is_done] == []
    done_by_hand(world)
    noted(world, "create_tag", {"tag": {"tag_id": 10}}, name="spring cleaning")
    for card in TAGGED[1:]:
        noted(world, "add_tag_to_card", card_id=card, tag_id=10)
    noted(world, "update_card", card_id=TAGGED[0], tag_ids_to_add=[10])
    for name, euros in SPENT.items():
        noted(world, "create_card", title=f"Budget 2025: {name}, {euros:,} EUR", column_id=27)
    for at, step in reversed([*enumerate(STEPS)]):
        noted(world, "create_subtask", card_id=155, description=step, position=at)
    assert [task for task, is_done in twelve(world) if not is_done] == []
    noted(world, "add_tag_to_card", card_id=121, tag_id=10)
    noted(world, "create_card", title="Budget 2025: Sales, 1674 EUR", column_id=27)
    (world / "files" / "sea" / "tides.md").write_text("shortened")
    assert [task for task, is_done in twelve(world) if not is_done] == ["32", "33", "34"]


@pytest.mark.slow
async def test_the_kanban_server_of_the_trial_notes_what_was_changed(tmp_path: Path) -> None:
    file = tmp_path / "kanban.jsonl"
    arguments = ["-m", "benchmarks.agent_trial.kanban_server", str(file)]
    command = StdioServerParameters(command=sys.executable, args=arguments, env={"PYTHONPATH": str(ROOT)})
    async with Client(command, mode="legacy") as client:
        await client.call_tool("list_tags", {})
        assert (await client.call_tool("create_tag", {"name": "checkout"})).is_error
        await client.call_tool("create_tag", {"name": "spring cleaning"})
    (row,) = (json.loads(line) for line in file.read_text().splitlines())
    assert (row["tool"], row["arguments"]) == ("create_tag", {"name": "spring cleaning"})
    assert row["answer"]["tag"]["name"] == "spring cleaning"


def test_the_world_is_the_same_each_time(tmp_path: Path) -> None:
    assert all_bookings() == all_bookings()
    heads = set()
    for name in ("first", "second"):
        write_repository(tmp_path / name)
        heads.add(subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tmp_path / name))
    assert len(heads) == 1


@pytest.mark.slow
async def test_the_booking_server_asks_which_time_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "bookings.json"
    file.write_text(json.dumps(all_bookings()))
    arguments = ["-m", "benchmarks.agent_trial.booking_server", str(file)]
    command = StdioServerParameters(command=sys.executable, args=arguments, env={"PYTHONPATH": str(ROOT)})
    conversation = Conversation(tmp_path / "log.jsonl")
    wanted = {"room": "Aurora", "date": "2026-12-03", "title": "Pricing", "people": 6}
    async with Client(command, mode="legacy", elicitation_callback=conversation.asked) as client:
        assert "11:00, 15:00" in await conversation.exchange(client, "book_room", wanted)
        answer = {"action": "accept", "content": {"time": "15:00"}}
        assert '"15:00"' in await conversation.exchange(client, "answer", answer)
    assert json.loads(file.read_text())[-1]["title"] == "Pricing"
