"""A signature contains everything that a model must know to call the tool."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_optimizer.compression.signature import Notes, signature
from tests.trying import at_most
from tests.unit.compression.cases import any_schema, nested, tool_with

TEXT = {"type": "string"}


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _brief(schema: dict[str, Any], notes: Notes = Notes.NONE) -> str:
    return signature(tool_with(schema, ""), notes)


def _type(schema: Any, notes: Notes = Notes.NONE) -> str:
    return _brief(_object("a", a=schema), notes).removeprefix("(a: ").removesuffix(")")


def test_required_parameters_come_first_and_optional_ones_are_marked() -> None:
    schema = _object(
        "title", "column_id", lane_id={"type": "integer", "default": 3}, title=TEXT, column_id={"type": "integer"}
    )
    assert signature(tool_with(schema, "Create a card. And more."), Notes.NONE) == (
        "(title: str, column_id: int, lane_id?: int = 3) Create a card."
    )


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "string"}, "str"),
        ({"type": "number"}, "num"),
        ({"type": "boolean"}, "bool"),
        ({"type": "object"}, "obj"),
        ({"type": ["string", "null"]}, "str|null"),
        ({"type": []}, "any"),
        ({"type": "unheard"}, "any"),
        ({"type": {"a": 1}}, "any"),
        ({}, "any"),
        (True, "any"),
        (False, "never"),
        ("junk", "any"),
        ({"enum": ["a", 1, None, True]}, "'a'|1|null|true"),
        ({"enum": []}, "any"),
        ({"const": {"a": [1]}}, '{"a":[1]}'),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": TEXT}, "str[]"),
        ({"items": TEXT}, "str[]"),
        ({"type": "array", "items": {"type": "array", "items": TEXT}}, "str[][]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "('a'|'b')[]"),
        ({"type": "array", "items": {"enum": ["a|b"]}}, "'a|b'[]"),
        ({"type": "array", "items": {"enum": ["it's | here"]}}, "'it\\'s | here'[]"),
        ({"type": "array", "items": [TEXT, {"type": "integer"}]}, "[str, int]"),
        ({"type": "array", "prefixItems": [TEXT], "items": False}, "[str]"),
        ({"anyOf": [TEXT, {"type": "integer"}, TEXT]}, "str|int"),
        ({"oneOf": [TEXT, True]}, "str|any"),
        ({"type": "string", "anyOf": [{"enum": ["a"]}, {"format": "date"}]}, "'a'|str"),
        ({"allOf": [TEXT]}, "str"),
        ({"allOf": [{}]}, "any"),
        ({"allOf": [_object("x", x=TEXT), _object(y=TEXT)]}, "{x: str}&{y?: str}"),
        ({"allOf": [{"anyOf": [TEXT, {"type": "null"}]}, {"enum": ["a", "b"]}]}, "(str|null)&('a'|'b')"),
        (_object("x", x=TEXT), "{x: str}"),
        ({"type": "array", "items": _object("x", x=TEXT)}, "{x: str}[]"),
        ({"type": "array", "items": {"anyOf": [_object(x=TEXT), _object(y=TEXT)]}}, "({x?: str}|{y?: str})[]"),
        ({"type": "object", "additionalProperties": TEXT}, "{*: str}"),
        ({"additionalProperties": {"type": "integer"}}, "{*: int}"),
        ({"type": "object", "additionalProperties": {}}, "obj"),
        ({**_object(x=TEXT), "additionalProperties": {"type": "integer"}}, "{x?: str, *: int}"),
        ({"type": "object", "patternProperties": {"^a": TEXT}}, "{/^a/: str}"),
        ({"type": ["object", "null"], "properties": {"x": TEXT}}, "{x?: str}|null"),
        ({"required": ["x"]}, "{x}"),
        ({"$ref": "#/$defs/gone"}, "Gone"),
        ({"$ref": "https://example.com/x"}, "X"),
    ],
)
def test_types_are_said_shortly(schema: Any, shown: str) -> None:
    assert _type(schema) == shown


def test_an_object_and_what_else_must_hold_of_it() -> None:
    either = {**_object(a=TEXT, b=TEXT), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert _brief(either) == "({a?: str, b?: str}&({a}|{b}))"
    kinds = {**_object("kind", kind=TEXT), "oneOf": [_object("x", x=TEXT), _object("y", y=TEXT)]}
    assert _type(kinds) == "{kind: str}&({x: str}|{y: str})"
    assert _brief({"anyOf": [_object("x", x=TEXT), _object("y", y=TEXT)]}) == "({x: str}|{y: str})"
    assert _brief({"$ref": "#/$defs/A", "required": ["x"], "$defs": {"A": _object(x=TEXT)}}) == "({x}&{x?: str})"


def test_what_holds_under_a_condition_is_shown() -> None:
    schema = {
        **_object("kind", kind=TEXT),
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": _object("x", x={"type": "integer"}),
        "else": True,
        "dependentSchemas": {"kind": {"properties": {"y": TEXT}}},
    }
    assert _brief(schema) == "(kind: str, y?: str, x?: int)"


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": "junk"}])
def test_a_tool_without_parameters_has_empty_brackets(schema: dict[str, Any]) -> None:
    assert _brief(schema) == "()"
    assert signature(tool_with(schema, "Ping.")) == "() Ping."
    assert signature(tool_with(schema, None)) == "()"


def test_limits_and_formats_are_shown_with_notes_only() -> None:
    for schema, shown in (
        ({"type": "integer", "minimum": 1, "maximum": 5}, "int 1..5"),
        ({"type": "number", "minimum": 0}, "num 0.."),
        ({"type": "integer", "maximum": 9}, "int ..9"),
        ({"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1}, "int"),
        ({"type": "string", "format": "date"}, "str date"),
        ({"type": "array", "items": {"type": "integer", "minimum": 1}}, "(int 1..)[]"),
    ):
        assert _type(schema, Notes.FULL) == shown
        assert _type(schema) == shown.split(" ")[0].strip("()") + ("[]" if "items" in schema else "")


@pytest.mark.parametrize("default", [None, [], {}, ""])
def test_a_default_that_says_nothing_is_not_shown(default: Any) -> None:
    assert _brief(_object(a={"type": "string", "default": default})) == "(a?: str)"


@pytest.mark.parametrize(("default", "shown"), [(0, "0"), (False, "false"), ("x", "'x'"), ([1], "[1]")])
def test_a_default_is_shown(default: Any, shown: str) -> None:
    assert _brief(_object(a={"default": default})) == f"(a?: any = {shown})"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("it's", r"'it\'s'"),
        ('say "x"', "'say \"x\"'"),
        ("a\nb", r"'a\nb'"),
        ("a\\b", r"'a\\b'"),
        ("a\tb", r"'a\tb'"),
        ("é", "'é'"),
    ],
)
def test_literals_are_quoted(value: str, shown: str) -> None:
    assert _type({"const": value}) == shown


def test_odd_names_are_quoted() -> None:
    assert _brief(_object("a b", **{"a b": TEXT, "$x-y.z[]": TEXT})) == "('a b': str, $x-y.z[]?: str)"


NOTED = _object(
    "path",
    path={"type": "string", "description": "Where to look. Not a file."},
    job_id={"type": "string", "description": "The ID of the job"},
    where=_object("x", x={"type": "integer", "description": "To the right. In pixels."}, y={"type": "integer"}),
)


def test_notes_stand_on_lines_of_their_own() -> None:
    tool = tool_with(NOTED, "Look around. With care.")
    assert signature(tool, Notes.FULL) == (
        "Look around. With care.\npath: str - Where to look. Not a file.\njob_id?: str\nwhere?: {}\n"
        " x: int - To the right. In pixels.\n y?: int"
    )
    lines = signature(tool, Notes.SENTENCE).split("\n")
    assert lines[:2] == ["Look around.", "path: str - Where to look. Not a file"]
    assert lines[2:] == ["job_id?: str", "where?: {}", " x: int - To the right. In pixels", " y?: int"]
    assert signature(tool, Notes.NONE) == "(path: str, job_id?: str, where?: {x: int, y?: int}) Look around."


def test_notes_that_stand_in_the_description_only_are_lifted() -> None:
    description = "Look around.\n\nArgs:\n    path: Relative to the root\n    job_id: Which job runs it"
    lines = signature(tool_with(NOTED, description), Notes.FULL).split("\n")
    assert lines[:3] == [
        "Look around.",
        "path: str - Where to look. Not a file. Relative to the root",
        "job_id?: str - The ID of the job Which job runs it",
    ]


def test_what_stands_twice_is_a_named_type() -> None:
    point = _object("x", x={"type": "integer"})
    assert _brief(_object(start=point, end=point)) == "(start?: Start, end?: Start)\nStart = {x: int}"
    noted = _object("x", x={"type": "integer", "description": "To the right"})
    assert _brief(_object(start=noted, end=noted, c={"description": "Why"}), Notes.FULL) == (
        "start?: Start\nend?: Start\nc?: any - Why\nStart = {}\n x: int - To the right"
    )


def test_two_types_never_share_a_name() -> None:
    one, two = _object(x=TEXT), _object(y=TEXT)
    text = _brief(_object(a=_object(to=one), b=_object(to=one, k=TEXT), c=_object(to=two), d=_object(to=two, k=TEXT)))
    assert text.endswith("\nTo = {x?: str}\nTo2 = {y?: str}")


def test_recursive_types_end_in_their_names() -> None:
    node = _object("value", value=TEXT, children={"type": "array", "items": {"$ref": "#/$defs/Node"}})
    schema = {**_object("root", root={"$ref": "#/$defs/Node"}), "$defs": {"Node": node}}
    assert _brief(schema) == "(root: Node)\nNode = {value: str, children?: Node[]}"
    array = {**_object(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}}}
    assert _brief(array) == "(a?: A)\nA = A[]"
    assert _brief(_object("n", n=TEXT, child={"$ref": "#"})) == "(n: str, child?: Type)\nType = {n: str, child?: Type}"


def test_objects_side_by_side_keep_their_notes() -> None:
    cat = {**_object("name", name={"type": "string", "description": "As it is called"}), "title": "Cat"}
    dog = _object("size", size={"type": "integer", "description": "Above ground"})
    schema = _object("pet", pet={"anyOf": [cat, dog, _object(plain=TEXT)]}, why={"description": "The reason for it"})
    assert _brief(schema, Notes.FULL) == (
        "pet: Cat|Pet|{plain?: str}\nwhy?: any - The reason for it\n"
        "Cat = {}\n name: str - As it is called\nPet = {}\n size: int - Above ground"
    )
    assert _brief(schema) == "(pet: {name: str}|{size: int}|{plain?: str}, why?: any)"


def test_notes_of_a_combined_root_are_kept() -> None:
    branch = _object("x", x={"type": "string", "description": "As it is called"})
    schema = {**_object(a={"type": "string", "description": "Some words"}), "allOf": [branch]}
    assert _brief(schema, Notes.FULL) == "a?: str - Some words\n&Arguments\nArguments = {}\n x: str - As it is called"


def test_the_description_of_a_referred_type_is_its_note() -> None:
    definitions = {"A": {"type": "string", "description": "A colour"}}
    schema = {**_object(a={"$ref": "#/$defs/A"}, b={"$ref": "#/$defs/B"}), "$defs": definitions}
    assert _brief(schema, Notes.FULL) == "a?: str - A colour\nb?: B"


def test_a_referred_object_is_unfolded_where_it_stands() -> None:
    target = _object("x", x={"type": "integer", "description": "To the right"})
    schema = {**_object(a={"type": "array", "items": {"$ref": "#/$defs/A"}}), "$defs": {"A": target}}
    assert _brief(schema, Notes.FULL) == "a?: {}[]\n x: int - To the right"


@pytest.mark.parametrize(
    "schema",
    [
        nested(60),
        {
            "properties": {"a": {"$ref": "#/$defs/l0"}},
            "$defs": {**{f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 9} for n in range(12)}, "l12": TEXT},
        },
    ],
)
def test_what_cannot_be_said_shortly_is_given_as_json(schema: dict[str, Any]) -> None:
    text = signature(tool_with(schema, "Look around. With care."))
    assert text == f"Look around. With care.\n{json.dumps(schema, separators=(',', ':'))}"


_names = st.sampled_from(["alpha", "beta", "gamma", "delta", "title", "enum", "$ref", "description"])


@st.composite
def _objects(draw: st.DrawFn, depth: int = 3) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for name in draw(st.lists(_names, unique=True, max_size=4)):
        schema: Any = draw(st.sampled_from([TEXT, {"enum": ["x"]}, {"type": "integer", "default": 1}]))
        if depth and draw(st.booleans()):
            inner = draw(_objects(depth - 1))
            frames = [inner, {"type": "array", "items": inner}, {"anyOf": [inner, TEXT]}, {"allOf": [inner]}]
            frames += [{**inner, "anyOf": [draw(_objects(depth - 1)), {"required": ["beta"]}]}]
            schema = draw(st.sampled_from(frames))
        if draw(st.booleans()):
            schema = {**schema, "description": draw(st.sampled_from(["Some words. And more.", "alpha"]))}
        described[name] = schema
    required = draw(st.lists(_names, unique=True, max_size=2))
    return {"type": "object", "properties": described, "required": required}


def _needed(schema: Any, root: bool = True) -> set[str]:
    found = set(schema.get("required", []))
    for name, child in schema.get("properties", {}).items():
        found |= {name} if root else set()
        found |= _needed(child, False)
    for key in ("anyOf", "allOf"):
        found = found.union(*(_needed(child, False) for child in schema.get(key, [])))
    return found | (_needed(schema["items"], False) if "items" in schema else set())


@settings(max_examples=at_most(60), deadline=None)
@given(_objects(), st.sampled_from(list(Notes)))
def test_no_parameter_and_nothing_required_is_ever_hidden(schema: dict[str, Any], notes: Notes) -> None:
    text = signature(tool_with(schema, "It works."), notes)
    assert "It works." in text
    for name in _needed(schema):
        assert name in text


@example(junk={"properties": {"type": None}, "type": []}, notes=Notes.FULL)
@example(junk={"properties": {"abc": {}}, "type": ["string"]}, notes=Notes.FULL)
@example(junk={"required": None, "properties": {"type": None}, "enum": [None]}, notes=Notes.FULL)
@example(junk={"properties": {"abc": None}, "const": 1}, notes=Notes.SENTENCE)
@given(junk=any_schema, notes=st.sampled_from(list(Notes)))
def test_any_junk_has_a_signature(junk: dict[str, Any], notes: Notes) -> None:
    text = signature(tool_with(junk), notes)
    properties = junk.get("properties")
    for name in properties if isinstance(properties, dict) else ():
        assert name in text
