"""Typed stubs of tools."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mcp_optimizer.catalog.learned_shapes import shape_text
from mcp_optimizer.scripts.names import Toolbox
from mcp_optimizer.scripts.stubs import short_stub
from tests.unit.scripts.tools import catalog_tool


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _short(schema: dict[str, Any], description: str = "", **fields: Any) -> str:
    tool = catalog_tool("board", "do", schema, description, **fields)
    return short_stub(
        tool, Toolbox([tool]).spelling(tool), shape_text(tool.server, tool.record.definition, None, "local")
    )


class TestTheShortForm:
    def test_says_how_a_script_calls_a_tool_what_comes_back_and_what_for(self) -> None:
        schema = {
            **_object(
                limit={"type": "integer", "default": 20},
                board_id={"type": "integer"},
                status={"enum": ["open", "done"]},
                tags={"type": "array", "items": {"type": "string"}},
                place={**_object(x={"type": "number"}, y={"type": "number"}), "required": ["x"]},
            ),
            "required": ["board_id"],
        }
        returned = {**_object(total={"type": "integer"}, cards={"type": "array", "items": _object(title={})})}
        stub = _short(schema, "List cards. Further text.", outputSchema={**returned, "required": ["total", "cards"]})
        assert stub == (
            "board.do(board_id: int, limit=20, status?: 'open'|'done', tags?: [str], place?: {x: float, y?: float})"
            " -> {total, cards[]: {title?}}  # List cards."
        )

    def test_names_are_spelt_as_python_needs_them(self) -> None:
        stub = _short(_object(**{"from": {"type": "string"}, "api-version": {"type": "string"}}))
        assert stub == "board.do(from_?: str, api_version?: str)"

    def test_says_that_there_are_more_parameters_than_it_shows(self) -> None:
        stub = _short(_object(**{f"parameter_{number}": {"type": "string"} for number in range(500)}))
        assert len(stub) < 800
        assert stub.endswith(", ...)")

    def test_after_eight_parameters_only_what_a_name_does_not_tell_has_a_type(self) -> None:
        plain = {f"p{number}": {"type": "string"} for number in range(9)}
        stub = _short(_object(**plain, kind={"enum": ["a", "b"]}))
        assert stub.endswith("p7?: str, p8?, kind?: 'a'|'b')")

    @pytest.mark.parametrize("text", ['a\n")\nimport os', "x' or 'y", "a\u2028b", '"""', "\x1b[31mred", "\\", "#"])
    def test_no_text_of_a_server_leaves_its_line(self, text: str) -> None:
        schema = _object(kind={"enum": [text, "b"]}, **{text: {"default": text, "type": "string"}})
        stub = _short(schema, f"Says {text} to you.")
        assert len(stub.splitlines()) == 1
        assert stub.isprintable()


BOMBS: dict[str, dict[str, Any]] = {
    "a circle of references": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
    },
    "a type inside itself": {
        "type": "object",
        "properties": {"a": {"$ref": "#"}, "b": {"type": "array", "items": {"$ref": "#"}}},
    },
    "references that double": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {
            f"d{number}": _object(x={"$ref": f"#/$defs/d{number + 1}"}, y={"$ref": f"#/$defs/d{number + 1}"})
            for number in range(40)
        },
    },
    "a million choices": {"type": "object", "properties": {"a": {"enum": [f"v{number}" for number in range(10**6)]}}},
    "a long choice": {"type": "object", "properties": {"a": {"enum": ["x" * 10**6]}}},
    "many properties": _object(**{f"p{number}": {"type": "string"} for number in range(20_000)}),
    "a long name": _object(**{"x" * 100_000: {"type": "string"}}),
    "wrong kinds": {"type": ["object", 3], "properties": {"a": 5, "b": {"type": 7}, "c": {"enum": {}}}, "required": 1},
    "names alike": _object(**{"a-b": {}, "a.b": {}, "a b": {}, "self": {"type": "string"}, "a_b": {}}),
    "names of Python": _object(**{"class": {}, "None": {}, "__init__": {}, "print": {}, "1": {}, "": {}, "é": {}}),
    "unions": _object(a={"anyOf": [{"anyOf": [{"type": "string"}] * 50}] * 50}, b={"oneOf": []}),
}


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = _object(a=schema)
    return schema


@pytest.mark.parametrize("schema", [*BOMBS.values(), _deep(90)], ids=[*BOMBS, "depth"])
class TestHostileSchemas:
    @pytest.mark.slow
    def test_the_short_form_stays_short(self, schema: dict[str, Any]) -> None:
        started = time.process_time()
        stub = _short(schema, outputSchema=schema)
        assert len(stub) < 3_000
        assert len(stub.splitlines()) == 1
        assert time.process_time() - started < 10
