"""Arguments from models are read in any unambiguous shape and checked against the tool's own schema."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.errors import InvalidArguments, InvalidRequest
from mcp_optimizer.gateway.arguments import ArgumentCheck, are_large, read_arguments
from mcp_optimizer.gateway.error_texts import for_model
from tests.unit.catalogs import mcp_tool

TITLE = {"title": "Hello"}
TOOL = mcp_tool("create_issue", properties={"title": {"type": "string"}})


@pytest.mark.parametrize(
    "given",
    [
        TITLE,
        json.dumps(TITLE),
        json.dumps(json.dumps(TITLE)),
        {"parameters": TITLE},
        {"arguments": TITLE},
        {"args": TITLE},
        {"params": TITLE},
        {"input": TITLE},
        {"create_issue": TITLE},
        {"arguments": json.dumps(TITLE)},
        json.dumps({"arguments": TITLE}),
        json.dumps({"arguments": json.dumps(TITLE)}),
        f"  {json.dumps(TITLE, indent=2)}\n",
    ],
)
def test_one_meaning_is_read_from_many_shapes(given: Any) -> None:
    assert read_arguments(given, TOOL) == TITLE


@pytest.mark.parametrize("given", [None, "", {}, "{}", '""', "null", {"arguments": {}}, {"arguments": None}])
def test_nothing_is_no_arguments(given: Any) -> None:
    assert read_arguments(given, TOOL) == {}


@pytest.mark.parametrize("wrapper", ["parameters", "arguments", "args", "params", "input", "create_issue"])
def test_a_wrapper_that_is_a_parameter_of_the_tool_stays(wrapper: str) -> None:
    tool = mcp_tool("create_issue", properties={wrapper: {"type": "object"}})
    assert read_arguments({wrapper: TITLE}, tool) == {wrapper: TITLE}


@pytest.mark.parametrize(
    "given",
    [
        {"issue": TITLE},
        {"arguments": TITLE, "title": "other"},
        {"input": "some text"},
        {"input": [1, 2]},
        {"args": 7},
        {"input": '"quoted"'},
    ],
)
def test_what_is_no_wrapper_around_arguments_stays_as_it_is(given: dict[str, Any]) -> None:
    assert read_arguments(given, TOOL) == given


def test_only_one_wrapper_is_taken_off() -> None:
    assert read_arguments({"arguments": {"input": TITLE}}, TOOL) == {"input": TITLE}


@pytest.mark.parametrize("text", ["{title: 1}", "{'title': 'x'}", '{"title": "x"', '{"a": 1} {"b": 2}', "title=x"])
def test_text_that_is_not_json_is_refused_with_where_it_breaks_and_what_to_do(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"'create_issue' are not valid JSON \(.+ \d+\).*an object"):
        read_arguments(text, TOOL)


@pytest.mark.parametrize(("given", "kind"), [([1], "list"), (7, "int"), (True, "bool"), ("[1]", "list"), ("7", "int")])
def test_what_is_not_an_object_is_refused(given: Any, kind: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'create_issue' must be an object, not {kind}"):
        read_arguments(given, TOOL)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        '{"a":' * 400 + "1" + "}" * 400,
        '{"a": ' + "9" * 5_000 + "}",
        '{"a": "half of an emoji: \\ud83d"}',
    ],
    ids=["bottomless", "deeper than can be sent", "endless number", "lone surrogate"],
)
def test_text_that_could_not_be_sent_on_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        read_arguments(text, TOOL)


def test_an_object_that_could_not_be_sent_on_is_refused() -> None:
    circle: dict[str, Any] = {}
    circle["a"] = circle
    for unsendable in (circle, {"a": object()}, {"a": "\ud83d"}, {"a": {"\ud83d": 1}}):
        with pytest.raises(InvalidRequest, match="'create_issue' cannot be written as JSON"):
            read_arguments(unsendable, TOOL)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(given=JSON)
def test_any_json_is_read_as_an_object_or_refused(given: Any) -> None:
    try:
        found = read_arguments(given, TOOL)
    except InvalidRequest:
        return
    assert isinstance(found, dict)


@given(arguments=st.dictionaries(st.text(), JSON, min_size=2, max_size=4))
def test_an_object_means_the_same_as_its_json_text(arguments: dict[str, Any]) -> None:
    assert read_arguments(json.dumps(arguments), TOOL) == read_arguments(arguments, TOOL) == arguments


def with_schema(schema: dict[str, Any]) -> McpTool:
    return McpTool.model_validate({"name": "t", "inputSchema": schema})


def check(arguments: Any, schema: dict[str, Any]) -> None:
    tool = with_schema(schema)
    ArgumentCheck().check(arguments, tool, tool.definition_hash)


def problems(arguments: Any, schema: dict[str, Any]) -> str:
    with pytest.raises(InvalidArguments) as raised:
        check(arguments, schema)
    assert raised.value.schema == schema
    return str(raised.value)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "card": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "integer"}}}},
        "color": {"enum": ["red", "green"]},
    },
    "required": ["title"],
    "additionalProperties": False,
}


def test_arguments_that_fit_pass() -> None:
    check({"title": "x", "card": {"tags": [1, 2]}, "color": "red"}, SCHEMA)


@pytest.mark.requirement("TS-1")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, '"title" is a required property'),
        ({"title": 7}, 'title: 7 is not of type "string"'),
        ({"title": "x", "card": {"tags": [1, "two"]}}, 'card.tags.1: "two" is not of type "integer"'),
        ({"title": "x", "color": "blue"}, "color: "),
        ({"title": "x", "tilte": "y"}, "tilte"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(arguments: dict[str, Any], message: str) -> None:
    text = problems(arguments, SCHEMA)
    assert text.startswith("Invalid parameters for 't': ")
    assert message in text


def test_all_problems_are_named_but_not_without_end() -> None:
    text = problems({"card": {"tags": ["a", "b"]}}, SCHEMA)
    assert all(part in text for part in ("title", "card.tags.0", "card.tags.1"))
    long = problems({"title": "x", "card": {"tags": ["a"] * 100}}, SCHEMA)
    assert long.count("card.tags") == 5
    assert long.endswith("and more.")


def test_a_model_is_told_the_schema_along_with_the_problem() -> None:
    tool = with_schema(SCHEMA)
    with pytest.raises(InvalidArguments) as raised:
        ArgumentCheck().check({}, tool, tool.definition_hash)
    text, _, schema = for_model(raised.value).partition(" Schema: ")
    assert '"title" is a required property' in text
    assert json.loads(schema) == SCHEMA


def test_a_large_value_is_not_sent_back_whole() -> None:
    assert len(problems({"title": ["x" * 100_000]}, SCHEMA)) < 2_000


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": []},
        {"$ref": "#/$defs/nowhere"},
        {"$schema": "https://example.com/our-own-draft", "required": ["a"]},
        {"required": "a"},
    ],
)
def test_a_schema_that_is_itself_broken_checks_nothing(schema: dict[str, Any]) -> None:
    check({"anything": "goes"}, schema)


def test_a_schema_never_makes_us_fetch_what_it_refers_to(monkeypatch: pytest.MonkeyPatch) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(False)
    port = server.getsockname()[1]
    try:
        for address in (f"http://127.0.0.1:{port}/schema.json", "file:///etc/hostname"):
            check({"a": 1}, {"properties": {"a": {"$ref": address}}})
        with pytest.raises(BlockingIOError):
            server.accept()
    finally:
        server.close()


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07"])
def test_schemas_of_older_drafts_are_checked_as_their_draft_says(draft: str) -> None:
    exclusive = {"minimum": 1, "exclusiveMinimum": True} if draft == "draft-04" else {"exclusiveMinimum": 1}
    schema = {
        "$schema": f"http://json-schema.org/{draft}/schema#",
        "properties": {"n": {"type": "number", **exclusive}, "m": {"$ref": "#/definitions/word"}},
        "definitions": {"word": {"type": "string"}},
    }
    check({"n": 1.5, "m": "x"}, schema)
    assert "n: 1 is less than or equal to the minimum of 1" in problems({"n": 1}, schema)
    assert "m: 7 is not of type" in problems({"m": 7}, schema)


def test_a_recursive_schema_is_checked_all_the_way_down() -> None:
    schema = {
        "$defs": {
            "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}
        },
        "$ref": "#/$defs/node",
    }
    check({"next": {"next": {"n": 1}}}, schema)
    assert "next.next.n" in problems({"next": {"next": {"n": "x"}}}, schema)


def test_definitions_are_told_apart_by_their_hash() -> None:
    checking = ArgumentCheck()
    strict, loose = with_schema({"required": ["a"]}), with_schema({})
    for _ in range(2):
        checking.check({}, loose, loose.definition_hash)
        with pytest.raises(InvalidArguments):
            checking.check({}, strict, strict.definition_hash)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (None, False),
        ({"a": 1, "b": [1, 2, {"c": "x" * 1_000}]}, False),
        ({"rows": [1] * 6_000}, True),
        ({"rows": [[[1]] for _ in range(3_000)]}, True),
        ({f"k{number}": 1 for number in range(6_000)}, True),
        ({"text": "x" * 200_000}, True),
        ({"texts": ["x" * 30_000] * 4}, True),
        ("x" * 200_000, True),
        ("x" * 50_000, False),
    ],
)
def test_many_values_and_long_texts_are_large(parameters: Any, expected: bool) -> None:
    assert are_large(parameters) is expected
