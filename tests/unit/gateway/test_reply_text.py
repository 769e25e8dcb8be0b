"""What a model reads of a search: enough to call the right tool, within a budget, and nothing twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.compression.brief import condensed
from mcp_optimizer.compression.signature import signature
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.tools import McpTool, ServerStatus, TokenMetrics
from mcp_optimizer.gateway.found_tools import FoundTools
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.serving.own_tools import SAVINGS_META_KEY, find_reply
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import down, gateway_over, live_catalog, mcp_tool, new_gateway, running

COUNT = TokenCounter().count_tokens
TEXT = {"type": "string"}


def tool(name: str, description: str, properties: dict[str, Any], *required: str) -> McpTool:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return McpTool(name=name, description=description, inputSchema=schema)


ADD = tool("git_add", "Adds file contents to the staging area", {"repo_path": TEXT, "files": TEXT}, "repo_path")
COMMIT = tool("git_commit", "Records changes to the repository", {"repo_path": TEXT, "message": TEXT}, "message")
LOG = tool("git_log", "Shows the commit logs", {"repo_path": TEXT, "max_count": TEXT}, "repo_path")
CARD = tool(
    "create_card",
    "Create a card in a column of a board.",
    {
        "title": {**TEXT, "description": "What is shown on the board."},
        **{f"field_{number}": {**TEXT, "description": f"The value of field number {number}."} for number in range(60)},
        "deadline": {**TEXT, "description": "The day by which it is wanted."},
    },
    "title",
)
MOVE = tool("move_card", "Move a card to another column of a board.", {"card_id": TEXT, "column": TEXT}, "card_id")
GIT, KANBAN = running("git", ADD, COMMIT, LOG), running("kanban", CARD, MOVE)


async def text_of(gateway: Gateway, request: str, **options: Any) -> str:
    return gateway.find(request, detail=Detail.SIGNATURE, **options).text


@pytest.fixture
async def gateway() -> Gateway:
    return await gateway_over(GIT, KANBAN)


async def test_a_reply_says_what_to_call_where_and_how(gateway: Gateway) -> None:
    text = await text_of(gateway, "record changes to the repository", limit=1)
    first = "git_commit(message: str, repo_path?: str) [git]: Records changes to the repository"
    assert text.split("\n")[0] == first


async def test_a_text_has_no_schema_and_of_the_metrics_one_line(gateway: Gateway) -> None:
    reply = find_reply(gateway.find("create a card", detail=Detail.SIGNATURE))
    text = reply["content"][0]["text"]
    assert "inputSchema" not in text
    assert "token_metrics" not in text
    assert "structuredContent" not in reply
    assert reply["_meta"][SAVINGS_META_KEY]["tokens_saved"] > 0


@pytest.mark.requirement("A6", "FR-006", "SC-001", "SC-004")
@pytest.mark.parametrize("detail", [Detail.SIGNATURE, Detail.SCHEMA, Detail.FULL])
async def test_every_part_of_a_reply_says_what_was_saved(gateway: Gateway, detail: Detail) -> None:
    found = gateway.find("create a card", limit=1, detail=detail)
    reply = find_reply(found)
    assert reply.keys() == {"content", "isError", "_meta"}
    text, metrics = reply["content"][0]["text"], found.token_metrics
    assert reply["_meta"][SAVINGS_META_KEY] == {**metrics.model_dump(), "reply_tokens": COUNT(text)}
    if detail is Detail.SIGNATURE:
        # What clients send of these definitions: they have no more than name, description and input schema.
        assert text.split("\n")[-1] == f"Saved {metrics.tokens_saved} of {metrics.baseline_tokens} tokens"
    else:
        assert json.loads(text)["token_metrics"] == metrics.model_dump()


@settings(deadline=None)
@given(returned=st.integers(0, 90_000_000), saved=st.integers(0, 9_000_000))
@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base"])
def test_the_line_about_savings_has_at_most_15_tokens(encoding: str, returned: int, saved: int) -> None:
    metrics = TokenMetrics.of(returned + saved, returned)
    for missing in ((), (down("jira", status=ServerStatus.STARTING),)):
        for sent in (metrics, None):
            line = FoundTools((), metrics, missing, sent=sent).savings_line
            assert TokenCounter(encoding).count_tokens(f"\n{line}") <= 15


OUTPUT = {"type": "object", "properties": {f"field_{number}": TEXT for number in range(200)}}


async def test_what_no_client_sends_of_a_definition_is_not_saved() -> None:
    bare = mcp_tool("list_cards", "List the cards of a board", {"board": TEXT})
    rich = bare.model_copy(
        update={"output_schema": OUTPUT, "title": "Cards", "annotations": {"readOnlyHint": True}, "name": "list_boards"}
    )
    found = (await gateway_over(running("kanban", bare, rich))).find("list_cards", limit=1, detail=Detail.SIGNATURE)
    assert found.token_metrics.baseline_tokens > 800
    assert found.sent is not None
    assert found.sent.baseline_tokens == pytest.approx(2 * TokenCounter().count_tool_tokens(bare), rel=0.15)
    assert found.text.endswith(f"Saved {found.sent.tokens_saved} of {found.sent.baseline_tokens} tokens")
    assert found.token_metrics.returned_tokens == TokenCounter().count_tool_tokens(bare)


async def test_a_client_that_loads_tools_on_demand_is_told_no_saving(gateway: Gateway) -> None:
    found = await gateway.search("create a card", detail=Detail.SIGNATURE, is_on_demand=True)
    metrics = found.token_metrics
    last = found.text.split("\n")[-1]
    assert last == f"{metrics.returned_tokens} of {metrics.baseline_tokens} tokens of tools"
    assert "aved" not in found.text


async def test_a_setting_turns_the_line_off_and_programs_still_get_the_figures(gateway: Gateway) -> None:
    gateway.use_limits_of_find(5, 400, says_savings=False)
    for detail in (Detail.SIGNATURE, Detail.FULL):
        reply = find_reply(gateway.find("create a card", detail=detail))
        assert "aved" not in reply["content"][0]["text"]
        assert reply["_meta"][SAVINGS_META_KEY]["tokens_saved"] > 0


@pytest.mark.requirement("A7")
async def test_while_servers_start_a_reply_says_so_and_counts_only_what_was_searched() -> None:
    gateway = await gateway_over(GIT, down("jira", status=ServerStatus.STARTING), down("slack"))
    found = gateway.find("record changes to the repository", limit=1, detail=Detail.SIGNATURE)
    assert found.tools[0].tool.name == "git_commit"
    searched = sum(map(TokenCounter().count_tool_tokens, (ADD, COMMIT, LOG)))
    assert found.token_metrics == TokenMetrics.of(searched, TokenCounter().count_tool_tokens(COMMIT))
    assert "Still starting, not searched yet: jira. Not included, because not running: slack (failed)." in found.text
    assert found.text.endswith(f"\nSaved {found.token_metrics.tokens_saved} of {searched} tokens so far")
    nothing = gateway.find("bake a cake", detail=Detail.SIGNATURE)
    assert nothing.text.startswith("No tool found yet.")
    assert nothing.token_metrics == TokenMetrics.of(0, 0)


async def test_a_server_that_runs_but_is_not_taken_in_yet_is_still_starting() -> None:
    catalog = await live_catalog(GIT)
    catalog.on_state(running("jira", mcp_tool("create_issue", "Create an issue")))
    found = new_gateway(catalog).find("create an issue", detail=Detail.SIGNATURE)
    assert "Still starting, not searched yet: jira." in found.text
    assert "(running)" not in found.text
    assert found.token_metrics == TokenMetrics.of(0, 0)


async def test_a_large_tool_is_shown_with_what_it_requires_and_what_the_request_is_about(gateway: Gateway) -> None:
    text = await text_of(gateway, "create a card with a deadline", limit=1)
    assert " title: str - What is shown on the board" in text
    assert " deadline?: str - Day by which it is wanted" in text
    assert "+60 optional: field_0, field_1" in text
    assert COUNT(text) < 200


async def test_asking_for_a_large_tool_by_its_name_gives_all_its_parameters_with_their_types(gateway: Gateway) -> None:
    text = await text_of(gateway, "create_card")
    names = ", ".join(f"field_{number}" for number in range(60))
    assert f"+61 optional (detail='full' explains them): {names}, deadline: str" in text
    assert " title: str - What is shown on the board" in text


def test_a_condensed_signature_shows_the_members_of_a_large_parameter_in_the_same_way() -> None:
    members = {
        f"field_{number}": {**TEXT, "description": f"The value of field number {number}."} for number in range(30)
    }
    rule = {**TEXT, "description": "Must be given as YYYY-MM, never as a name of a month."}
    body = {"type": "object", "properties": {"title": TEXT, **members, "month": rule}, "required": ["title"]}
    one = tool("create_report", "Create a report.", {"body": body}, "body")
    lines = condensed(signature(one), one).split("\n")
    assert lines[1:3] == ["body: {}", " title: str"]
    assert [line for line in lines if line.startswith(" month?: str - Must be given as YYYY-MM")]
    [others] = [line for line in lines if line.startswith(" +")]
    assert others.startswith(" +30 optional: field_0, field_1, ")
    assert others.endswith("field_29: str")
    assert len("\n".join(lines)) < len(signature(one)) / 3


def test_a_condensed_signature_keeps_rules_and_says_a_type_once() -> None:
    day = {**TEXT, "format": "date", "description": "Only cards from this day on, in ISO 8601 format (YYYY-MM-DD)."}
    rule = {**TEXT, "description": "Must be unique; refused otherwise."}
    plain = {f"size_{number}": {"type": "integer", "description": "A size."} for number in range(4)}
    one = tool("list_cards", "List the cards.", {"board": TEXT, "key": rule, "from_day": day, **plain}, "board")
    assert condensed(signature(one), one).split("\n") == [
        "List the cards.",
        "board: str",
        "key?: str - Must be unique; refused otherwise",
        "from_day?: str date - Only cards from this day on",
        "+4 optional (detail='full' explains them): size_0, size_1, size_2, size_3: int",
    ]


async def test_a_parameter_that_two_tools_share_is_explained_once() -> None:
    shared = {"instance": {**TEXT, "description": "Name of the instance to work with. Omit for the default instance."}}
    tools = [tool(f"{verb}_card", f"{verb} a card", shared) for verb in ("archive", "restore")]
    text = await text_of(await gateway_over(running("kanban", *tools)), "archive_card, restore_card")
    assert text.count("Omit for the default instance") == 1
    assert " instance?: as above" in text


@pytest.mark.parametrize("name", ["createCard", "the tool create_card", "create_card, move_card", "kanban create_card"])
async def test_a_name_may_be_spelt_and_wrapped(gateway: Gateway, name: str) -> None:
    assert "field_59, deadline: str" in await text_of(gateway, name)


async def test_a_name_among_other_words_is_a_hint_and_not_a_request_for_all_of_it(gateway: Gateway) -> None:
    text = await text_of(gateway, "create a card for a customer", tool_keywords="create_card")
    assert text.startswith("create_card [kanban]: Create a card")
    assert "+61 optional" in text


async def test_several_actions_get_their_tools_in_one_reply(gateway: Gateway) -> None:
    found = gateway.find("stage file contents; record changes; show the commit logs", detail=Detail.SIGNATURE)
    lines = found.text.split("\n")
    assert [line for line in lines if line.startswith("For")] == [
        'For "stage file contents":',
        'For "record changes":',
        'For "show the commit logs":',
    ]
    assert {"git_add", "git_commit", "git_log"} <= {hit.tool.name for hit in found.tools}
    shown = [line.partition("(")[0] for line in lines if line.startswith("git_")]
    assert shown == ["git_add", "git_commit", "git_log"]


async def test_each_of_several_actions_names_the_next_tools(gateway: Gateway) -> None:
    text = await text_of(gateway, "see what changed; list all commits; show the difference of branches")
    assert "or: git_log(repo_path, …), git_add(repo_path, …)" in text


async def test_an_action_names_what_else_it_may_mean_unless_another_action_needs_the_same_server() -> None:
    more = {"": "", "_label": " label", "_branch": " branch", "_comment": " comment", "_reaction": " reaction"}
    hub = [
        tool(f"create_issue{end}", f"Create an issue{said}.", {"title": TEXT}, "title") for end, said in more.items()
    ]
    told = "Create a new issue in a Jira project, with its fields, its assignee and its links to other work."
    jira = tool("jira_create_issue", told, {"project_key": TEXT}, "project_key")
    gateway = await gateway_over(running("github", *hub), running("jira", jira, MOVE), GIT)
    text = await text_of(gateway, "create an issue; show the commit logs")
    assert "more: [jira] jira_create_issue(project_key)" in text
    assert "jira" not in await text_of(gateway, "show the commit logs; create an issue; create an issue label")


async def test_the_next_tools_have_the_optional_parameters_that_the_action_speaks_for_and_what_they_return() -> None:
    searching = McpTool(
        name="search_cards",
        description="Search cards of a board.",
        inputSchema={
            "type": "object",
            "properties": {"sort_by": {"enum": ["due", "created"]}, "owner": TEXT, **{f"f{n}": TEXT for n in range(9)}},
        },
        outputSchema={"type": "object", "properties": {"id": TEXT, "title": TEXT}, "required": ["id", "title"]},
    )
    listing = tool("list_cards", "List cards of a board.", {"board": TEXT})
    gateway = await gateway_over(running("kanban", listing, searching), GIT)
    text = await text_of(gateway, "find the oldest cards of a board; show the commit logs")
    assert "or: search_cards(sort_by?: 'due'|'created', …) -> {id, title}" in text


async def test_a_name_among_several_actions_gives_all_of_that_tool(gateway: Gateway) -> None:
    text = await text_of(gateway, "show the commit logs; create_card")
    assert "field_59, deadline: str" in text


async def test_where_scripts_are_on_several_actions_are_one_request(gateway: Gateway) -> None:
    assert "run_script" in await text_of(gateway, "show the commit logs; record changes")
    assert "run_script" not in await text_of(gateway, "show the commit logs")


async def test_the_words_of_a_name_are_a_request_and_not_a_name(gateway: Gateway) -> None:
    assert "+61 optional" in await text_of(gateway, "create card")
    assert "field_59?: str" not in await text_of(gateway, "show the commit logs; create card")


async def test_actions_that_are_too_many_for_one_search_are_named(gateway: Gateway) -> None:
    text = await text_of(gateway, "; ".join(["show the commit logs", "move a card", *["record changes"] * 16]))
    assert 'Too many actions for one search; not searched: "record changes; record changes".' in text


async def test_what_was_shown_in_part_is_shown_again(gateway: Gateway) -> None:
    caller = Caller("claude-code", "session 3")
    for _ in range(2):
        found = await gateway.search(
            "create a card on a board", detail=Detail.SIGNATURE, caller=caller, conversation="one"
        )
        assert "create_card [kanban]: Create a card" in found.text


async def test_a_list_of_requests_is_several(gateway: Gateway) -> None:
    assert gateway.find("show commit logs; move a card").parts
    assert not gateway.find("show commit logs").parts


async def test_fewer_tools_than_parts_are_asked_for_one_by_one(gateway: Gateway) -> None:
    found = gateway.find("show commit logs; move a card", limit=1)
    assert len(found.tools) == 1
    assert not found.parts


async def test_a_conversation_is_not_shown_the_same_tool_twice(gateway: Gateway) -> None:
    caller = Caller("claude-code", "session 1")

    async def ask(request: str, who: Caller = caller) -> str:
        found = await gateway.search(request, detail=Detail.SIGNATURE, caller=who, conversation=who.key)
        return found.text

    first = await ask("record changes")
    again = await ask("record changes to the repository")
    assert "git_commit(message: str" in first
    assert "git_commit(message: str" not in again
    assert "shown earlier (a search for its name shows it again): git_commit(message, …)" in again
    assert "git_commit(message: str" in await ask("git_commit")
    assert "git_commit(message: str" in await ask("record changes", Caller("claude-code", "session 2"))


async def test_without_a_known_conversation_everything_is_shown_again(gateway: Gateway) -> None:
    for _ in range(2):
        found = await gateway.search("record changes", detail=Detail.SIGNATURE)
        assert "git_commit(" in found.text


async def test_what_does_not_fit_the_budget_is_named() -> None:
    tools = [
        tool(f"read_thing_{number}", "Read a thing and return it.", {f"key_{number}": TEXT}, f"key_{number}")
        for number in range(30)
    ]
    gateway = await gateway_over(running("things", *tools))
    found = gateway.find("read a thing", limit=20, detail=Detail.SIGNATURE)
    assert COUNT(found.text) < 700
    assert all(hit.tool.name in found.text for hit in found.tools)
    assert "more: " in found.text


@pytest.mark.slow
async def test_a_budget_is_kept_whatever_the_tools_look_like() -> None:
    hostile = [
        tool("pick_1", "Pick a thing\nmore: rm_rf\n" * 3_000, {}),
        tool("pick_2", "Pick a thing", {"x" * 50_000: TEXT, "thing": {"enum": ["v" * 1_000] * 500}}, "thing"),
        tool("pick_3", "Pick a thing", {}, *[f"p{number}" for number in range(5_000)]),
        McpTool(name="pick_4", description="Pick a thing", inputSchema={"type": 3, "properties": [], "required": "x"}),
    ]
    gateway = await gateway_over(running("s", *hostile))
    for request in ("pick a thing", "pick_1", "pick_3"):
        assert COUNT(await text_of(gateway, request)) <= gateway.limits.reply_tokens


async def test_a_servers_purpose_is_searched_and_shown() -> None:
    def database(name: str, purpose: str) -> UpstreamState:
        state = running(name, tool("read_query", "Run a query", {"query": TEXT}, "query"))
        return replace(state, spec=replace(state.spec, description=purpose))

    gateway = new_gateway(
        await live_catalog(database("db1", "Orders of the furniture shop"), database("db2", "Trips and their costs"))
    )
    found = gateway.find("which of the trips cost most", detail=Detail.SIGNATURE)
    assert found.tools[0].tool.server == "db2"
    assert "[db2] Trips and their costs" in found.text


async def test_a_servers_instructions_are_searched_and_shown_shortened() -> None:
    state = running("db", tool("run", "Run a query", {}))
    told = "Knows every lighthouse of the coast. " + "Be careful. " * 500
    gateway = new_gateway(await live_catalog(replace(state, instructions=told)))
    text = await text_of(gateway, "query the lighthouse")
    assert '[db] says "Knows every lighthouse of the coast."' in text
    assert COUNT(text) < 150


async def test_the_places_a_server_was_started_with_are_shown(tmp_path: Path) -> None:
    state = running("git", LOG)
    (tmp_path / "server.py").touch()
    arguments = (str(tmp_path / "server.py"), "--repository", str(tmp_path), "--token", "secret", "/does/not/exist")
    gateway = new_gateway(await live_catalog(replace(state, spec=replace(state.spec, args=arguments))))
    text = await text_of(gateway, "show commit logs")
    assert f"[git] paths: {tmp_path}" in text
    assert "secret" not in text
    assert "exist" not in text
    assert "server.py" not in text


async def test_a_server_that_can_list_its_places_says_so() -> None:
    allowed = mcp_tool("list_allowed_directories", "List the directories that may be used")
    gateway = await gateway_over(running("files", allowed, mcp_tool("read_file", "Read a file")))
    text = await text_of(gateway, "read a file", limit=1)
    assert "[files] where it may work: list_allowed_directories()" in text


async def test_definitions_that_are_asked_for_are_json(gateway: Gateway) -> None:
    reply = find_reply(gateway.find("create a card", limit=1, detail=Detail.FULL))
    shown = json.loads(reply["content"][0]["text"])
    assert shown["tools"][0]["inputSchema"] == CARD.input_schema
    assert shown.keys() == {"tools", "token_metrics"}


async def test_what_a_reader_should_know_is_in_the_text() -> None:
    gateway = await gateway_over(GIT, down("jira"))
    assert "Not included, because not running: jira (failed)." in await text_of(gateway, "commit")
    assert "No tool fits." in await text_of(gateway, "zebra")


async def test_further_tools_of_the_same_server_are_named_with_what_they_require(gateway: Gateway) -> None:
    text = await text_of(gateway, "record changes to the repository")
    assert "git_log(repo_path)" in text.split("\n")[-1] or "git_log(" in text


async def test_a_tool_without_a_description_has_its_parameters_on_their_own_lines() -> None:
    plain = tool("scan_disk", "", {"path": {**TEXT, "description": "Where to begin, such as C:."}}, "path")
    gateway = await gateway_over(running("disks", plain))
    assert (await text_of(gateway, "scan disk")).startswith("scan_disk [disks]:\n path: str - Where to begin")


async def test_what_is_shown_in_a_word_does_not_count_as_shown() -> None:
    nine = {f"k{at}": TEXT for at in range(9)}
    box = {"type": "object", "properties": nine, "required": list(nine)}
    pack = tool("pack_box", "Pack a box", {"box": box}, "box")
    opened = await gateway_over(running("boxes", mcp_tool("open_box", "Open a box"), pack))
    caller = Caller("claude-code", "session 4")
    for request in ("open a box", "open a box", "pack a box"):
        found = await opened.search(request, detail=Detail.SIGNATURE, caller=caller, conversation="one")
    assert "k8: str" in found.text


async def test_more_tools_than_asked_for_are_never_returned(gateway: Gateway) -> None:
    assert len(gateway.find("show commit logs; move a card", limit=2).tools) <= 2
