"""A tool's schema in reports: its parameters, the ones it shares, and its state after each phase."""

from __future__ import annotations

import pytest

from mcp_optimizer.compression.groups import Group, GroupPlan
from mcp_optimizer.profiles.tiers import ProfileName
from mcp_optimizer.profiles.tool_schema import (
    DescriptionState,
    LoadState,
    SchemaState,
    SharedParameterSchema,
    shared_by_tool,
    shared_parameters,
    tool_schema,
)
from tests.unit.catalogs import mcp_tool

INSTANCE = {"type": "string", "description": "Which instance"}
MOVE = mcp_tool("move_card", "Move a card. Anywhere.", {"instance": INSTANCE, "id": {"type": "integer"}, "lane": True})
COPY = mcp_tool("copy_card", "Copy a card.", {"instance": {**INSTANCE, "default": "x"}, "id": {"type": "integer"}})
FIND = mcp_tool("find", "Find.", {"instance": INSTANCE, "id": {"type": "string"}, "kind": {"enum": ["a"]}})
NAME = mcp_tool("name", "Name.", {"id": {"type": "string"}})


@pytest.mark.requirement("B2", "SP-2")
def test_parameters_that_tools_have_alike_are_shared_the_most_used_first() -> None:
    shared = shared_parameters([MOVE, COPY, FIND, NAME])
    assert [(one.param_name, one.type, one.namespace, one.used_by) for one in shared] == [
        ("instance", "string", "", ("move_card", "copy_card", "find")),
        # The same name has two types, so each gets its own namespace.
        ("id", "integer", "integer", ("move_card", "copy_card")),
        ("id", "string", "string", ("find", "name")),
    ]
    assert shared[0].description == "Which instance"
    assert shared_by_tool(shared)["find"] == ["instance", "id"]


@pytest.mark.requirement("SP-3")
def test_schemas_that_differ_in_more_than_words_are_not_the_same_type() -> None:
    kinds = [mcp_tool(name, "", {"kind": {"enum": [name]}}) for name in ("a", "b")]
    assert shared_parameters(kinds) == []
    assert [one.type for one in shared_parameters([kinds[0], kinds[0]])] == ['{"enum":["a"]}']


@pytest.mark.requirement("SP-1")
def test_what_one_tool_uses_is_not_shared() -> None:
    with pytest.raises(ValueError, match="at least two"):
        SharedParameterSchema("id", "integer", "", "", ("one",))


@pytest.mark.requirement("B1", "TS-5", "TS-6")
def test_a_tool_begins_uncompressed_eager_and_verbose_and_may_end_compressed_lazy_and_concise() -> None:
    required = MOVE.model_copy(update={"input_schema": {**MOVE.input_schema, "required": ["id"]}})
    first = (SchemaState.UNCOMPRESSED, LoadState.EAGER, DescriptionState.VERBOSE)
    last = (SchemaState.COMPRESSED, LoadState.LAZY, DescriptionState.CONCISE)
    plans = [GroupPlan((Group("place", {"lane": "lane", "id": "id"}),))]
    before = tool_schema(required, {}, (), ProfileName.MINIMAL, 50, "Move cards", first)
    after = tool_schema(required, {"move_card": ["instance"]}, plans, ProfileName.FULL, 40, "Move cards", last)
    assert (before.description, after.description) == ("Move a card. Anywhere.", "Move cards")
    assert (after.required, after.optional) == (("id",), ("instance", "lane"))
    assert (after.shared_params, dict(after.nested_groups)) == (("instance",), {"place": ("lane", "id")})
    assert (after.schema_state, after.load_state, after.description_state) == last
    assert (after.profile, after.token_cost) == (ProfileName.FULL, 40)
