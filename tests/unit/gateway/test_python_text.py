"""What a model reads of a search for scripts: stubs, within a budget, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.catalog.tool_forms import Detail, ToolForms
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.serving.own_tools import find_response
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import RecordingPool, gateway_over, live_catalog, running

COUNT = TokenCounter().count_tokens
TEXT = {"type": "string"}


def tool(name: str, description: str, properties: dict[str, Any], *required: str, **fields: Any) -> McpTool:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return McpTool(name=name, description=description, inputSchema=schema, **fields)


LOGGED = {"type": "object", "properties": {"commits": {"type": "array", "items": {"properties": {"sha": TEXT}}}}}
COMMIT = tool("git_commit", "Records changes to the repository", {"repo_path": TEXT, "message": TEXT}, "message")
LOG = tool("git_log", "Shows the commit logs", {"repo_path": TEXT}, "repo_path", outputSchema=LOGGED)
MOVE = tool("move-card", "Move a card to another column of a board.", {"card_id": TEXT, "from": TEXT}, "card_id")
WIDE = {f"field_{number}": {**TEXT, "enum": ["one", "two", "three"]} for number in range(60)}
MANY = [tool(f"move_card_{number}", "Move a card of a board.", WIDE, "field_1") for number in range(8)]
GIT, KANBAN = running("git", COMMIT, LOG), running("kanban", MOVE)


@pytest.fixture
async def gateway() -> Gateway:
    return await gateway_over(GIT, KANBAN)


async def test_a_tool_is_written_as_a_script_calls_it(gateway: Gateway) -> None:
    found = gateway.find("show the commit logs", limit=1, detail=Detail.PYTHON)
    stub, *_ = found.text.split("\n")
    assert stub == "git.git_log(repo_path: str) -> {commits?[]: {sha?}}  # Shows the commit logs"


async def test_several_actions_get_a_stub_each(gateway: Gateway) -> None:
    text = gateway.find("move a card; show the commit logs", detail=Detail.PYTHON).text
    assert "kanban.move_card(card_id: str, from_?: str)" in text
    assert "git.git_log(repo_path: str)" in text


async def test_a_reply_keeps_to_its_budget_and_names_the_rest() -> None:
    gateway = await gateway_over(running("kanban", *MANY))
    text = gateway.find("move a card of a board", limit=8, detail=Detail.PYTHON).text
    assert COUNT(text) < 800
    assert "more: kanban.move_card_" in text


async def test_a_conversation_is_shown_nothing_twice(gateway: Gateway) -> None:
    caller = Caller("one")
    first = await gateway.search("show the commit logs", "", 1, Detail.PYTHON, caller, conversation="one")
    second = await gateway.search("show the commit logs", "", 1, Detail.PYTHON, caller, conversation="one")
    named = await gateway.search("git_log", "", 1, Detail.PYTHON, caller, conversation="one")
    assert first.text.startswith("git.git_log(repo_path: str)")
    assert second.text.startswith("shown earlier (a search for its name shows it again): git.git_log")
    assert named.text.startswith("git.git_log(repo_path: str)")


async def test_a_signature_shown_before_does_not_hide_a_stub(gateway: Gateway) -> None:
    caller = Caller("one")
    await gateway.search("show the commit logs", "", 1, Detail.SIGNATURE, caller, conversation="one")
    found = await gateway.search("show the commit logs", "", 1, Detail.PYTHON, caller, conversation="one")
    assert "git.git_log(repo_path: str)" in found.text


async def test_programs_get_the_stubs_and_the_savings(gateway: Gateway) -> None:
    found = gateway.find("show the commit logs", limit=1, detail=Detail.PYTHON)
    assert (find_response(found).tools[0].description or "").startswith("git.git_log(")
    assert 0 < found.token_metrics.returned_tokens < found.token_metrics.baseline_tokens


async def test_without_scripts_it_is_refused() -> None:
    counter = TokenCounter()
    gateway = Gateway(await live_catalog(GIT), RecordingPool(), ToolForms(counter), Results.plain(counter), 5)
    with pytest.raises(InvalidRequest, match="scripts, which are off here"):
        gateway.find("show the commit logs", detail=Detail.PYTHON)


async def test_several_actions_name_further_tools_and_none_that_is_shown() -> None:
    things = ("cards", "tags", "users", "columns")
    listing = [tool(f"list_{thing}", f"Lists the {thing} of a board.", {}) for thing in things]
    adding = [tool(f"add_{thing}", f"Adds {thing} to a board.", {}) for thing in things]
    gateway = await gateway_over(running("kanban", *listing, *adding))
    request = "; ".join(f"list the {thing} of a board" for thing in things) + "; add cards to a board"
    *stubs, more, _saved = gateway.find(request, detail=Detail.PYTHON).text.split("\n")
    shown = {stub.partition("(")[0] for stub in stubs}
    named = more.removeprefix("more: ").split(", ")
    assert set(named) == {f"kanban.add_{thing}" for thing in things} - shown
    assert "kanban.add_cards" in shown
