"""Reading tools/list: all pages, every usable tool exactly as sent, and a reason for each one left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.config.serverfile.spec import ToolSelection
from mcp_optimizer.upstream.listing import LeftOut, Listing, list_tools, read_tools
from tests.conftest import DATA
from tests.trying import at_most

DUMPS = DATA / "mcp-tools"
SCHEMA = {"type": "object"}


class Pages:
    """A server's answers by cursor; remembers what it was asked."""

    def __init__(self, pages: Mapping[str | None, Mapping[str, Any]]) -> None:
        self._pages = pages
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, method: str, params: dict[str, Any]) -> Mapping[str, Any]:
        self.asked.append((method, params))
        return self._pages[params.get("cursor")]


def raw(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **fields}


def names(listing: Listing) -> list[str]:
    return [tool.name for tool in listing.tools]


async def test_all_pages_are_read() -> None:
    server = Pages(
        {
            None: {"tools": [raw("a"), raw("b")], "nextCursor": "2"},
            "2": {"tools": [raw("c")], "nextCursor": "3"},
            "3": {"tools": [raw("d")]},
        }
    )
    assert names(await list_tools(server)) == ["a", "b", "c", "d"]
    assert server.asked == [
        ("tools/list", {}),
        ("tools/list", {"cursor": "2"}),
        ("tools/list", {"cursor": "3"}),
    ]


async def test_a_cursor_that_comes_again_ends_the_list() -> None:
    server = Pages(
        {
            None: {"tools": [raw("a")], "nextCursor": "x"},
            "x": {"tools": [raw("b")], "nextCursor": "y"},
            "y": {"tools": [raw("c")], "nextCursor": "x"},
        }
    )
    assert names(await list_tools(server)) == ["a", "b", "c"]
    assert len(server.asked) == 3


async def test_a_list_that_never_ends_is_ended() -> None:
    asked = 0

    async def endless(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"tools": [raw(f"t{asked}")], "nextCursor": str(asked)}

    assert len((await list_tools(endless)).tools) == asked == 1_000


@pytest.mark.parametrize("answer", [{}, {"tools": None}, {"tools": {}}, {"tools": [], "nextCursor": None}])
async def test_an_answer_without_tools_is_an_empty_list(answer: dict[str, Any]) -> None:
    assert await list_tools(Pages({None: answer})) == Listing()


@pytest.mark.promise("unusable-tools-reported")
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"name": "bad", "inputSchema": "none"}, "inputSchema: "),
        ({"name": "bad", "inputSchema": []}, "inputSchema: "),
        ({"name": "bad", "inputSchema": SCHEMA, "description": 7}, "description: "),
        ({"name": "bad", "inputSchema": SCHEMA, "annotations": "none"}, "annotations: "),
        ({"name": "bad", "inputSchema": SCHEMA, "outputSchema": True}, "outputSchema: "),
    ],
)
def test_one_invalid_tool_is_left_out_by_name_with_the_reason_and_the_others_stay(
    bad: dict[str, Any], reason: str
) -> None:
    found = read_tools([raw("first"), bad, raw("last")])
    assert names(found) == ["first", "last"]
    (left_out,) = found.left_out
    assert left_out.name == "bad"
    assert left_out.reason.startswith(reason)
    assert "\n" not in left_out.reason


@pytest.mark.parametrize("garbage", [None, 7, "tool", [], {}, {"name": None}, {"name": ""}, {"name": ["x"]}])
def test_an_entry_without_a_name_is_left_out_by_its_place(garbage: Any) -> None:
    found = read_tools([raw("first"), garbage, raw("last")])
    assert names(found) == ["first", "last"]
    assert [left_out.name for left_out in found.left_out] == ["#2"]


@pytest.mark.promise("passed-as-sent")
def test_tools_stay_exactly_as_they_were_sent() -> None:
    sent = raw(
        "t",
        inputSchema={"type": "object", "properties": {"a": {"default": None, "x-vendor": 1}}, "x-order": [1]},
        _meta={"k": None},
        futureField={"deep": [None]},
        icons=[{"src": "x"}],
    )
    (tool,) = read_tools([sent]).tools
    assert json.loads(tool.wire_json) == sent


@pytest.mark.parametrize("entry", [{"name": "t"}, {"name": "t", "inputSchema": None}])
def test_a_tool_without_a_schema_takes_nothing_and_can_be_used(entry: dict[str, Any]) -> None:
    (tool,) = read_tools([entry]).tools
    assert tool.details.input_schema == {"type": "object"}


def test_a_schema_under_a_name_that_is_not_the_wires_is_no_schema() -> None:
    (tool,) = read_tools([{"name": "t", "input_schema": {"type": "object", "required": ["x"]}}]).tools
    assert tool.details.input_schema == {"type": "object"}


def test_a_field_under_a_name_that_is_not_the_wires_stays_what_it_is() -> None:
    sent = raw("t", output_schema={"type": "object"})
    (tool,) = read_tools([sent]).tools
    assert json.loads(tool.wire_json) == sent
    assert tool.details.output_schema is None


def test_the_first_of_two_tools_of_one_name_wins() -> None:
    found = read_tools([raw("t", description="first"), raw("u"), raw("t", description="second")])
    assert [tool.details.description for tool in found.tools] == ["first", None]
    assert found.left_out == (LeftOut("t", "the server lists this name twice; the first one is used"),)


def test_tools_that_are_turned_off_are_told_apart_from_those_that_cannot_be_used() -> None:
    listing = read_tools([raw("get"), raw("set"), raw("delete_all"), {"name": 5}])
    chosen = listing.of(ToolSelection(turned_off=("delete_*", "sett")))
    assert names(chosen) == ["get", "set"]
    assert (chosen.turned_off, chosen.idle) == (("delete_all",), ("sett",))
    assert chosen.left_out == listing.left_out
    summary = chosen.summary()
    assert (summary.tools, summary.size, summary.turned_off, summary.idle) == ((), 2, ("delete_all",), ("sett",))


async def test_a_page_that_was_read_is_not_held_by_those_who_delivered_it() -> None:
    answer = {"tools": [raw("t")]}
    found = await list_tools(Pages({None: answer}))
    assert names(found) == ["t"]
    assert answer == {"tools": []}


def test_a_tool_nested_too_deeply_to_be_written_is_left_out_by_name() -> None:
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"properties": {"a": deep}}
    found = read_tools([raw("fine"), raw("deep", inputSchema=deep)])
    assert names(found) == ["fine"]
    assert [left_out.name for left_out in found.left_out] == ["deep"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
ALMOST_TOOLS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("name", "title", "description", "inputSchema", "input_schema", "outputSchema", "_meta"), JSON
    ),
)


@pytest.mark.slow
@settings(max_examples=at_most(60))
@given(entries=st.lists(JSON | ALMOST_TOOLS, max_size=8))
def test_whatever_a_server_lists_every_entry_is_either_a_tool_or_left_out(entries: list[Any]) -> None:
    found = read_tools(entries)
    assert len(found.tools) + len(found.left_out) == len(entries)
    assert len(set(names(found))) == len(found.tools)


@pytest.mark.slow
@pytest.mark.skipif(not DUMPS.is_dir(), reason="the tools of real servers are not here")
def test_no_tool_of_433_real_servers_is_left_out_but_those_listed_twice() -> None:
    for path in sorted(DUMPS.glob("*.json")):
        entries = json.loads(path.read_text(encoding="utf-8"))["tools"]
        found = read_tools(entries)
        assert len(found.tools) == len({entry["name"] for entry in entries}), path.name
