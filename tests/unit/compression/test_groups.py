"""Parameters are nested into groups, and arguments are restored to their original shape."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_optimizer.compression.groups import (
    NO_GROUPS,
    Group,
    GroupPlan,
    as_grouped,
    candidate_groups,
    expand,
    misused,
    named_groups,
    regroup,
)
from tests.unit.compression.cases import admits, any_json, any_schema

TEXT = {"type": "string"}
KINDS: list[tuple[dict[str, Any], st.SearchStrategy[Any]]] = [
    (TEXT, st.text(max_size=3)),
    ({"type": "integer"}, st.integers(-9, 9)),
    ({"type": "array", "items": TEXT}, st.lists(st.text(max_size=2), max_size=2)),
]
NAMES = [
    "labels_to_add labels_to_remove owner_name owner_mail owner_id owner title",
    "size_x size_y size_z size_to_add size_to_remove",
    "sizes_x size_x sizes_y",
    "x_to_add y_to_remove x_to_remove y_to_add x_a x_b x_c",
]


def _schema(names: str, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": dict.fromkeys(names.split(), TEXT), **fields}


@pytest.mark.requirement("B2", "CT-3")
def test_a_pair_to_add_and_to_remove_becomes_one() -> None:
    plan = candidate_groups(_schema("labels_to_add labels_to_remove title"))
    assert plan.groups == (Group("labels", {"add": "labels_to_add", "remove": "labels_to_remove"}),)
    grouped = regroup(_schema("labels_to_add labels_to_remove title"), plan)
    assert grouped["properties"] == {
        "title": TEXT,
        "labels": {"type": "object", "properties": {"add": TEXT, "remove": TEXT}},
    }
    given_arguments = {"title": "t", "labels": {"add": "x"}}
    assert expand(given_arguments, plan) == {"title": "t", "labels_to_add": "x"}


@pytest.mark.requirement("CT-1")
def test_three_of_a_prefix_are_a_group_and_two_are_not() -> None:
    assert candidate_groups(_schema("size_x size_y size_z")).groups[0].members == {
        "x": "size_x",
        "y": "size_y",
        "z": "size_z",
    }
    assert candidate_groups(_schema("size_x size_y")) == NO_GROUPS
    assert candidate_groups(_schema("_x _y_ _z x_ y_")) == NO_GROUPS


def test_no_group_takes_the_name_of_a_parameter_or_of_another_group() -> None:
    assert candidate_groups(_schema("size_x size_y size_z size")) == NO_GROUPS
    assert candidate_groups(_schema("labels_to_add labels_to_remove labels")) == NO_GROUPS
    both = candidate_groups(_schema("size_to_add size_to_remove size_x size_y size_z"))
    assert [group.name for group in both.groups] == ["size"]


def test_groups_that_are_wanted_hold_what_the_tool_has_of_them() -> None:
    schema = _schema("board_id column_id lane_id title")
    plan = named_groups(
        schema, {"placement": ["board_id", "column_id", "row_id"], "meta": ["title"], "lane_id": ["title", "board_id"]}
    )
    assert plan == GroupPlan((Group("placement", {"board_id": "board_id", "column_id": "column_id"}),))
    assert not named_groups(schema, {})


def test_two_members_never_share_a_name_inside() -> None:
    plan = named_groups(
        _schema("labels_x label_x labels_y"), {"labels": ["labels_x", "label_x", "labels_y", "labels_x"]}
    )
    assert plan.groups[0].members == {"x": "labels_x", "label_x": "label_x", "y": "labels_y"}


def test_a_parameter_is_in_one_group_only() -> None:
    plan = named_groups(_schema("a b c"), {"one": ["a", "b"], "two": ["b", "c"]})
    assert [group.name for group in plan.groups] == ["one"]


@pytest.mark.requirement("CT-4")
def test_a_group_is_required_with_its_members() -> None:
    schema = _schema("size_x size_y size_z title", required=["size_x", "title"], additionalProperties=False)
    grouped = regroup(schema, candidate_groups(schema))
    assert grouped["required"] == ["title", "size"]
    assert grouped["properties"]["size"]["required"] == ["x"]
    assert grouped["properties"]["size"]["additionalProperties"] is False
    assert not admits(grouped, {"title": "t"})
    assert "required" not in regroup(_schema("a_x a_y a_z", required=True), candidate_groups(_schema("a_x a_y a_z")))


@pytest.mark.parametrize(
    "fields",
    [
        {"anyOf": [{"required": ["size_x"]}, {"required": ["size_y"]}]},
        {"dependentRequired": {"size_x": ["size_y"]}},
        {"minProperties": 2},
        {"additionalProperties": TEXT},
        {"patternProperties": {"^size": TEXT}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"required": ["size_x"]}}},
        {"const": {"size_x": "1"}},
        {"$defs": {"a": {"$ref": "#/properties/size_x"}}},
        {"$defs": {"a": {"$ref": "#"}}},
        {"properties": "junk"},
    ],
)
def test_parameters_that_a_schema_speaks_of_elsewhere_are_not_grouped(fields: dict[str, Any]) -> None:
    schema = {**_schema("size_x size_y size_z"), **fields}
    assert candidate_groups(schema) == NO_GROUPS
    assert named_groups(schema, {"s": ["size_x", "size_y"]}) == NO_GROUPS


PLAN = GroupPlan((Group("size", {"x": "size_x", "y": "size_y"}),))


@pytest.mark.requirement("B2", "CX-2")
@pytest.mark.parametrize(
    ("arguments", "expanded"),
    [
        ({"size": {"x": 1}}, {"size_x": 1}),
        ({"size": {}}, {}),
        ({"size_x": 1}, {"size_x": 1}),
        ({"size": {"x": 1}, "size_x": 2}, {"size_x": 2}),
        ({"size": {"x": 1, "other": 2}}, {"size_x": 1, "size": {"other": 2}}),
        ({"size": {"other": 2}}, {"size": {"other": 2}}),
        ({"size": "large"}, {"size": "large"}),
        ({"size": None}, {"size": None}),
        ({}, {}),
    ],
)
def test_arguments_of_either_shape_become_the_original_ones(
    arguments: dict[str, Any], expanded: dict[str, Any]
) -> None:
    assert expand(arguments, PLAN) == expanded
    assert expand(arguments, NO_GROUPS) == arguments


def test_a_group_that_is_used_wrongly_is_named_with_what_it_takes() -> None:
    closed = {"additionalProperties": False}
    assert misused({"size": {"x": 1}, "size_x": 2}, PLAN, {}) == [
        "size.x and size_x: the same parameter; give one of them"
    ]
    assert misused({"size": {"x": 1}, "size_x": 1}, PLAN, closed) == []
    assert misused({"size": {"z": 1}}, PLAN, closed) == ["size: has no 'z'; it takes x, y"]
    assert misused({"size": None}, PLAN, closed) == ["size: must be an object with x, y"]
    # An open schema may mean something by it.
    assert misused({"size": {"z": 1}}, PLAN, {}) == misused({"size": "large"}, PLAN, {}) == []
    assert misused({}, PLAN, closed) == []


def test_a_problem_is_told_under_the_name_that_was_given() -> None:
    problem = "size_x.0: 'a' is not of type \"integer\""
    assert as_grouped(problem, {"size": {"x": ["a"]}}, PLAN) == problem.replace("size_x.0", "size.x.0")
    for other in ({"size_x": ["a"]}, {"size": {"y": 1}}, {"size": "large"}):
        assert as_grouped(problem, other, PLAN) == problem
    assert as_grouped("size_xl: wrong", {"size": {"x": 1}}, PLAN) == "size_xl: wrong"


@st.composite
def grouped_tools(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, st.SearchStrategy[Any]]]:
    names = draw(st.sampled_from(NAMES)).split()
    kinds = {name: draw(st.sampled_from(KINDS)) for name in names}
    schema: dict[str, Any] = {"type": "object", "properties": {name: kind for name, (kind, _) in kinds.items()}}
    schema["required"] = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    schema |= draw(st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": True}]))
    return schema, {name: strategy for name, (_, strategy) in kinds.items()}


@pytest.mark.requirement("B2", "TS-2", "CX-2")
@given(grouped_tools(), st.data())
def test_what_the_grouped_schema_admits_expands_to_what_the_original_admits(
    tool: tuple[dict[str, Any], dict[str, st.SearchStrategy[Any]]], data: st.DataObject
) -> None:
    schema, strategies = tool
    plan = data.draw(st.sampled_from([candidate_groups(schema), named_groups(schema, {"own": list(strategies)[1:4]})]))
    assume(plan)
    original = {
        name: data.draw(strategies[name])
        for name in strategies
        if name in schema["required"] or data.draw(st.booleans())
    }
    arguments = dict(original)
    for group in plan.groups:
        inside = {inner: arguments.pop(name) for inner, name in group.members.items() if name in arguments}
        if data.draw(st.booleans()):
            inside["unknown"] = data.draw(any_json)
        given_empty: bool = data.draw(st.booleans())
        if inside or given_empty:
            arguments[group.name] = inside
    if admits(regroup(schema, plan), arguments):
        assert admits(schema, expand(arguments, plan))
    assert admits(schema, original)
    assert expand(original, plan) == original


@given(any_schema, st.dictionaries(st.sampled_from("abc"), any_json))
def test_no_junk_makes_grouping_fail(junk: dict[str, Any], arguments: dict[str, Any]) -> None:
    schema = {**junk, "properties": {"a_x": TEXT, "a_y": True, "a_z": junk}}
    plan = candidate_groups(schema) or named_groups(schema, {"g": ["a_x", "a_y"]})
    if plan:
        assert regroup(schema, plan)["properties"]
        assert isinstance(expand(arguments, plan), dict)
