"""How scripts spell servers, tools and parameters."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.catalog.tools import make_records
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.scripts.names import Toolbox, parameters_of, python_name
from mcp_optimizer.search.lexical import Vocabulary
from tests.unit.catalogs import mcp_tool


def tool(server: str, name: str, schema: dict[str, object] | None = None) -> CatalogTool:
    details = mcp_tool(name) if schema is None else mcp_tool(name, inputSchema=schema)
    [made] = make_records(server, [Definition.of(details)], {}, Vocabulary())
    return CatalogTool(made, f"{server}__{name}", 1)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("move_card", "move_card"),
        ("move-card", "move_card"),
        ("3d", "_3d"),
        ("class", "class_"),
        ("match", "match"),
        ("", "_"),
        ("a.b/c d", "a_b_c_d"),
        ("__class__", "_class__"),
        ("ﬁnd", "find"),
        ("суть", "суть"),
    ],
)
def test_a_name_becomes_an_identifier(text: str, name: str) -> None:
    assert python_name(text) == name


@given(st.text(max_size=30))
def test_every_text_becomes_an_identifier_that_is_no_keyword(text: str) -> None:
    name = python_name(text)
    assert name.isidentifier()
    assert not keyword.iskeyword(name)
    assert not name.startswith("__")


def test_each_of_two_names_that_are_spelt_alike_gets_its_own() -> None:
    toolbox = Toolbox([tool("s", "a-b"), tool("s", "a_b"), tool("s", "a.b")])
    assert {name: found.record.name for name, found in toolbox.servers["s"].items()} == {
        "a_b": "a_b",
        "a_b_2": "a-b",
        "a_b_3": "a.b",
    }


def test_a_server_does_not_take_the_name_of_a_builtin_or_a_helper() -> None:
    toolbox = Toolbox([tool("list", "x"), tool("call", "x"), tool("json", "x")])
    assert set(toolbox.servers) == {"list_", "call_", "json_"}


def test_a_tool_is_found_by_its_spelling_and_its_public_name() -> None:
    card = tool("my-board", "move-card")
    toolbox = Toolbox([card])
    assert toolbox.tool("my_board", "move_card") is card
    assert toolbox.named("my_board.move_card") is card
    assert toolbox.named("my-board__move-card") is card
    assert toolbox.named("move") is None
    assert toolbox.spelling(card) == "my_board.move_card"


def test_parameters_that_are_needed_come_first() -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"b": {}, "x-y": {}, "a": {}}, "required": ["a"]}
    found = [(one.python, one.own, one.is_required) for one in parameters_of(tool("s", "t", schema))]
    assert found == [("a", "a", True), ("b", "b", False), ("x_y", "x-y", False)]


@pytest.mark.slow
def test_thousands_of_names_that_are_spelt_alike_are_told_apart_quickly() -> None:
    tools = [tool("s", "-" * (number % 60) + chr(0x4E00 + number) + "!") for number in range(3_000)]
    assert len(Toolbox(tools).servers["s"]) == 3_000
