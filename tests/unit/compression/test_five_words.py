"""Five words are what a person would write: a verb, its object, what sets the tool apart; or the tool is not clear."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.compression.five_words import five_words
from mcp_optimizer.compression.short_descriptions import MOST_WORDS, ShortDescription, concise
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.search.words import terms
from mcp_optimizer_demo.kanban.server import KANBAN_TOOLS
from tests.unit.catalogs import mcp_tool


def words(name: str, description: str = "", title: str | None = None) -> str:
    [short] = five_words([mcp_tool(name, description, title=title)])
    return short.text


@pytest.mark.requirement("B4")
def test_the_tools_of_the_minimal_profile_read_as_a_person_would_write_them() -> None:
    tools = [McpTool.model_validate(tool.definition().model_dump(by_alias=True)) for tool in KANBAN_TOOLS]
    shorts = {tool.name: short for tool, short in zip(tools, five_words(tools), strict=True)}
    wanted = {
        "list_boards": "List boards you can see",
        "list_cards": "List cards",
        "list_workspaces": "List workspaces of this instance",
        "get_card": "Get card with its fields",
        "get_board": "Get one board",
        "get_workspace": "Get workspace with its boards",
        "create_card": "Create card in a column",
        "update_card": "Change fields of a card",
        "move_card": "Move card to another column",
        "search_board": "Find a board",
        "health_check": "Check that an instance answers",
        "list_instances": "List instances",
    }
    assert {name: shorts[name].text for name in wanted} == wanted
    assert [name for name, short in shorts.items() if not short.is_clear] == []


@pytest.mark.parametrize(
    ("description", "wanted"),
    [
        ("Creates a branch.", "Create a branch"),
        ("Retrieving the current status", "Retrieve the current status"),
        ("This tool searches for news articles using the API of a site.", "Search news articles using API"),
        ("Use this tool to archive a card of a board, if you must.", "Archive card of a board"),
        ("Allows you to rename a lane.", "Rename a lane"),
        ("Returns a list of the open cards.", "List open cards"),
        ("[API] Trigger a new deployment for a service", "Trigger deployment for a service"),
        ("Purpose: Delete an email", "Delete an email"),
        ("Quickly read structured profile data.", "Read structured profile data"),
        ("Permanently delete a note", "Permanently delete a note"),
        ("Clean up old files", "Clean up old files"),
        ("Burn a card.", "Burn a card"),
        ("Burns the card of a board", "Burn card of a board"),
        ("Smashes a card", "Smash a card"),
        ("Buries a card", "Bury a card"),
        ("Double-click an element on the page", "Double-click element on the page"),
    ],
)
def test_a_phrase_begins_with_the_plain_form_of_the_verb_that_the_sentence_has(description: str, wanted: str) -> None:
    assert words("x", description) == wanted


@pytest.mark.parametrize(
    ("description", "wanted"),
    [
        ("Update an existing comment.", "Update a comment"),
        ("Get an updated user profile", "Get an updated user profile"),
        ("Move a card to another column, lane or position", "Move card to another column"),
        ("Create a card in a column of a board and return it.", "Create card in a column"),
        ("Delete multiple entities from the knowledge graph", "Delete entities from knowledge graph"),
        ("Create a new, empty workspace for a team that is large", "Create a new empty workspace"),
        ("Remove one or more droplets from a firewall", "Remove droplets from a firewall"),
        ("Adapt a query from one language to another language", "Adapt a query"),
        ("Get the activity log for a pull request", "Get pull request activity log"),
        ("Push multiple files to a single large GitLab project in one commit", "Push multiple files"),
        ("Search messages across all Microsoft Teams channels and chats", "Search messages across Microsoft Teams"),
        ("Send a card to the archive on a specific board", "Send card to the archive"),
        ("List teams configured in Grafana OnCall for an organization", "List teams"),
        ("List workspaces accessible to a person", "List workspaces accessible to person"),
        ("Get the name and the ID of a user by email address of work", "Get name of a user"),
        ("Read filings (10-K) of a company", "Read filings of a company"),
        ("Make edits — each replaces a line", "Make edits"),
    ],
)
def test_a_phrase_ends_where_a_thing_ends_and_has_articles_where_there_is_room(description: str, wanted: str) -> None:
    assert words("x", description) == wanted


@pytest.mark.parametrize(
    ("description", "wanted"),
    [
        ("Create, read, update or delete a webhook.", "Manage a webhook"),
        ("Search, group and count events", "Search events"),
        ("Set or remove the limit of a lane", "Set or remove lane limit"),
        ("Create or replace a single file in a repository of yours", "Create or replace a file"),
    ],
)
def test_several_verbs_are_two_or_one(description: str, wanted: str) -> None:
    assert words("x", description) == wanted


def test_what_changes_the_meaning_is_not_left_out() -> None:
    assert words("forget", "Delete all archived draft cards of a board") == "Delete all archived draft cards"
    assert words("news", "Get only new messages of the channel") == "Get only new messages"
    assert words("archive_card", "Take a card off the board without losing it") == "Archive card"
    assert words("list_stuck_cards", "Get the cards that stand in one column for weeks") == "List stuck cards"


def test_a_sentence_that_is_no_advice_says_what_the_tool_does() -> None:
    assert words("rename_board", "Use with care. Call get_board first.") == "Rename board"
    assert words("call_tool", "Call a tool of a server") == "Call tool of a server"
    assert words("ask_docs", "This tool will take in a question and answer it.") == "Ask docs"


def test_a_tool_that_is_deprecated_is_described_by_its_name_and_keeps_its_warning() -> None:
    tool = mcp_tool("list_lanes", "DEPRECATED: Use list_columns instead. Lists lanes.")
    [short] = five_words([tool])
    assert short.text == "List lanes"
    assert "DEPRECATED: Use list_columns" in concise(tool, short, tool.description or "").input_schema["description"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("get_card_comments", "Get card comments"),
        ("listPullRequests", "List pull requests"),
        ("create-api-key", "Create API key"),
        ("workflows-list", "List workflows"),
        ("netbox_get_object", "Get netbox object"),
        ("list_projects_tool", "List projects"),
        ("get_users_of_the_oldest_large_team", "Get users"),
        ("validate_the_very_long_name_here", "Validate very long name here"),
        ("think", "Think"),
        ("list_recording_add_on_results", "List recording add on results"),
        ("quality_gate", "Quality gate"),
    ],
)
def test_a_tool_without_a_sentence_is_described_by_its_name(name: str, wanted: str) -> None:
    assert words(name) == wanted


def test_a_word_that_begins_many_names_is_the_servers_and_left_out() -> None:
    tools = [mcp_tool(f"netbox_get_{thing}") for thing in ("cable", "device", "rack", "site", "port")]
    assert [short.text for short in five_words(tools)][:2] == ["Get cable", "Get device"]


def test_a_servers_name_is_not_what_a_verb_is_done_to() -> None:
    things = ("click", "drag", "scroll", "hover", "resize")
    tools = [mcp_tool(f"browser_{verb}", f"{verb.title()} the element that you see on a page") for verb in things]
    assert [short.text for short in five_words(tools)][:2] == ["Click the element", "Drag the element"]
    assert words("_", "So it is. Delete a board. Or not.") == "Delete a board"
    assert words("search_by_name") == "Search by name"


def test_a_title_is_used_before_the_name_and_written_like_a_sentence() -> None:
    assert words("a", title="Rename All Boards") == "Rename all boards"
    assert words("stories-x", "It is so.", title="Stories: Unassign Current User") == "Unassign current user"


def test_a_sentence_without_a_verb_is_used_if_the_name_has_none() -> None:
    assert words("hashtag_media", "Recent media for a hashtag (24h).") == "Recent media for a hashtag"
    assert words("overview", "Market overview: indices, rates and funds.") == "Market overview"
    assert words("local_api", "The local API provides extensions for places.") == "Local API"


def test_a_weak_thing_is_not_left_without_what_it_belongs_to() -> None:
    assert words("update_board", "Change the name, description or kind of a board.") == "Update board"
    assert words("get_state", "Set the state of a person's present long session as an app") == "Get state"
    assert words("x", "Get detailed information about a specific place") == "Get information about a place"


def test_tools_with_the_same_phrase_get_another_one_that_tells_them_apart() -> None:
    tools = [
        mcp_tool("create_issue", "Create an issue in a project."),
        mcp_tool("jira_create_issue", "Create an issue in a project."),
    ]
    texts = [short.text for short in five_words(tools)]
    assert texts == ["Create an issue", "Create issue in a project"]
    assert all(short.is_clear for short in five_words(tools))


def test_tools_that_say_the_same_are_not_clear_and_neither_is_one_that_says_nothing() -> None:
    twins = [mcp_tool("one", "Repeat the very same thing."), mcp_tool("one", "Repeat the very same thing.")]
    other = mcp_tool("move_card", "Move a card.")
    assert [short.is_clear for short in five_words([*twins, other])] == [False, False, True]
    numbered = [mcp_tool(f"tool_{number}", "Does the very same thing.") for number in range(2)]
    assert [short.is_clear for short in five_words(numbered)] == [False, False]
    assert five_words([mcp_tool("the", "the of and")]) == [ShortDescription("", False)]
    assert five_words([]) == []


def test_other_scripts_keep_their_own_words_if_these_are_short() -> None:
    assert words("maps_geo", "将地址转换为坐标。支持更多") == "将地址转换为坐标"
    assert words("get_board", "Получить доску по номеру.") == "Получить доску по номеру"
    assert words("get_board", "احصل على اللوحة") == "احصل على اللوحة"
    assert words("get_board", "将" * 60) == "Get board"
    assert words("get_board", "Devolve o quadro com todas as suas colunas e raias") == "Get board"


@pytest.mark.parametrize(
    "text",
    [
        "Create " + "a " * 500_000,
        "create card " * 90_000,
        "(" * 1_000_000,
        "[" * 300_000 + "]" * 300_000,
        "\x00\x1b[31m\u202e" * 300_000,
        "," * 1_000_000,
        "\n" * 1_000_000,
        "and or " * 150_000,
        "y" * 1_000_000,
        "deprecated " * 90_000,
    ],
)
def test_a_megabyte_of_anything_takes_no_time(text: str) -> None:
    began = time.process_time()
    [short] = five_words([mcp_tool(text[:1_000_000] or "x", text, title=text)])
    assert time.process_time() - began < 1
    assert len(short.text.split()) <= MOST_WORDS
    assert short.text.isprintable()


_TEXT = st.one_of(
    st.text(max_size=80),
    st.lists(
        st.sampled_from(
            "Create Get list a the all of in for and or , that card cards board new one its with from to is Jira API "
            "details by ID without archived , . ( ) - using up".split()
        ),
        max_size=14,
    ).map(" ".join),
)


@pytest.mark.requirement("B4", "TS-3")
@given(st.lists(st.tuples(st.text(min_size=1, max_size=20), _TEXT, st.none() | _TEXT), max_size=6))
def test_any_text_gives_at_most_five_printable_words_and_no_two_clear_ones_alike(
    texts: list[tuple[str, str, str | None]],
) -> None:
    tools = [mcp_tool(name, description, title=title) for name, description, title in texts]
    shorts = five_words(tools)
    assert shorts == five_words(tools)
    for short in shorts:
        assert len(short.text.split()) <= MOST_WORDS
        assert short.text.isprintable()
        assert len(short.text) <= 80
        assert not short.text.lower().endswith((" of", " a", " the", " and", " or", " in", " with"))
    clear = [frozenset(terms(short.text)) for short in shorts if short.is_clear]
    assert len(clear) == len(set(clear))
    assert frozenset() not in clear
