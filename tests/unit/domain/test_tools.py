"""The values that all parts exchange: tools as their servers sent them, and metrics that must add up."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mcp_optimizer.domain.tools import McpTool, TokenMetrics, Tool, ToolUpdateDetails
from tests.conftest import DATA
from tests.unit.catalogs import mcp_tool

DUMPS = DATA / "mcp-tools"
NOW = datetime(2026, 11, 15, tzinfo=UTC)


def tool_row(**fields: Any) -> Tool:
    row = {
        "id": str(uuid.uuid4()),
        "mcpserver_id": str(uuid.uuid4()),
        "details": mcp_tool("t"),
        "last_updated": NOW,
        "created_at": NOW,
    }
    return Tool(**{**row, **fields})


@pytest.mark.requirement("A2", "DM-Tool")
def test_a_tool_row_has_the_fields_of_the_data_model_and_no_others() -> None:
    assert list(Tool.model_fields) == [
        "id",
        "mcpserver_id",
        "details",
        "details_embedding",
        "token_count",
        "last_updated",
        "created_at",
    ]
    assert (tool_row().token_count, tool_row().details_embedding) == (0, None)


@pytest.mark.parametrize("field", ["id", "mcpserver_id", "details", "last_updated", "created_at"])
def test_a_tool_row_without_one_of_its_fields_is_refused(field: str) -> None:
    values = {name: getattr(tool_row(), name) for name in Tool.model_fields if name != field}
    with pytest.raises(ValidationError, match=field):
        Tool(**values)


@pytest.mark.requirement("DM-Tool", "DM-ToolUpdateDetails")
@pytest.mark.parametrize("model", [tool_row, ToolUpdateDetails])
def test_a_token_count_is_never_negative(model: Any) -> None:
    assert model(token_count=0).token_count == 0
    with pytest.raises(ValidationError, match="token_count"):
        model(token_count=-1)


@pytest.mark.requirement("A2", "DM-Tool")
def test_the_embedding_of_a_tool_row_stays_out_of_its_dumps() -> None:
    row = tool_row(details_embedding=np.ones(4, dtype=np.float32))
    assert row.details_embedding is not None
    assert "details_embedding" not in row.model_dump()
    assert "details_embedding" not in json.loads(row.model_dump_json())


@pytest.mark.requirement("DM-Tool")
@pytest.mark.parametrize("shape", [(), (2, 2), (1, 4)])
@pytest.mark.parametrize("model", [tool_row, ToolUpdateDetails])
def test_an_embedding_that_is_not_one_dimensional_is_refused(model: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError, match="one-dimensional"):
        model(details_embedding=np.ones(shape))


@pytest.mark.requirement("DM-ToolUpdateDetails")
def test_an_update_changes_nothing_by_default() -> None:
    assert list(ToolUpdateDetails.model_fields) == ["mcpserver_id", "details", "details_embedding", "token_count"]
    assert set(dict(ToolUpdateDetails()).values()) == {None}


def metrics(baseline: int, returned: int, saved: int, percentage: float) -> TokenMetrics:
    return TokenMetrics(
        baseline_tokens=baseline, returned_tokens=returned, tokens_saved=saved, savings_percentage=percentage
    )


@pytest.mark.requirement("A5", "DM-TokenMetrics")
def test_token_metrics_are_exactly_four_numbers() -> None:
    assert list(TokenMetrics.of(200, 50).model_dump().items()) == [
        ("baseline_tokens", 200),
        ("returned_tokens", 50),
        ("tokens_saved", 150),
        ("savings_percentage", 75.0),
    ]


@pytest.mark.requirement("DM-TokenMetrics")
@pytest.mark.parametrize(
    "numbers",
    [(0, 0, 0, 0.0), (100, 100, 0, 0.0), (100, 0, 100, 100.0), (3, 1, 2, 66.67), (3, 1, 2, 66.66), (3, 1, 2, 66.676)],
)
def test_token_metrics_that_add_up_are_accepted(numbers: tuple[int, int, int, float]) -> None:
    assert metrics(*numbers).savings_percentage == numbers[3]


@pytest.mark.requirement("A5", "DM-TokenMetrics")
@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ((-1, 0, -1, 0.0), "baseline_tokens"),
        ((10, -1, 11, 100.0), "returned_tokens"),
        ((10, 20, -10, 0.0), "tokens_saved"),
        ((10, 10, 0, -0.1), "savings_percentage"),
        ((10, 0, 10, 100.1), "savings_percentage"),
        ((10, 4, 5, 50.0), "tokens_saved must equal"),
        ((3, 1, 2, 66.65), "does not match"),
        ((3, 1, 2, 66.68), "does not match"),
        ((100, 50, 50, 50.011), "does not match"),
        ((0, 0, 0, 0.005), "must be 0 when baseline_tokens is 0"),
        ((10, 5, 5, float("nan")), "savings_percentage"),
    ],
)
def test_token_metrics_that_do_not_add_up_are_refused(numbers: tuple[int, int, int, float], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        metrics(*numbers)


@pytest.mark.promise("savings-never-negative")
@given(baseline=st.integers(0, 10**9), share=st.floats(0, 1))
def test_metrics_of_any_subset_are_valid_and_never_negative(baseline: int, share: float) -> None:
    returned = int(baseline * share)
    found = TokenMetrics.of(baseline, returned)
    assert found.tokens_saved == baseline - returned >= 0
    assert 0.0 <= found.savings_percentage <= 100.0


def test_more_returned_than_there_is_cannot_be_stated() -> None:
    with pytest.raises(ValidationError):
        TokenMetrics.of(10, 11)


WIRE = {
    "name": "get_rows",
    "inputSchema": {"type": "object", "properties": {"after": {"type": ["string", "null"], "default": None}}},
    "annotations": {"readOnlyHint": True, "futureHint": None},
    "execution": {"taskSupport": "optional"},
    "icons": [{"src": "data:,", "sizes": None}],
    "_meta": {"vendor/key": [1, None, {"a": 1.5}]},
}


def test_a_tool_keeps_the_fields_this_version_does_not_know() -> None:
    assert json.loads(McpTool.model_validate(WIRE).model_dump_json()) == WIRE


def test_a_tool_drops_only_nulls_at_its_top_level() -> None:
    raw = {**WIRE, "title": None, "description": None, "outputSchema": None, "futureField": None}
    assert McpTool.model_validate(raw).model_dump(mode="json") == WIRE


def test_a_tool_in_json_is_compact_and_named_as_on_the_wire() -> None:
    tool = McpTool.model_validate({"name": "t", "input_schema": {"type": "object"}, "output_schema": {}})
    assert tool.model_dump_json() == '{"name":"t","inputSchema":{"type":"object"},"outputSchema":{}}'


@pytest.mark.parametrize("raw", [{"inputSchema": {}}, {"name": "", "inputSchema": {}}, {"name": "t"}])
def test_a_tool_needs_a_name_and_a_schema(raw: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        McpTool.model_validate(raw)


def test_the_hash_of_a_definition_changes_with_any_part_of_it() -> None:
    same = McpTool.model_validate(WIRE), McpTool.model_validate({**WIRE, "title": None})
    assert same[0].definition_hash == same[1].definition_hash
    changed = [{**WIRE, "name": "x"}, {**WIRE, "futureField": 1}, {**WIRE, "inputSchema": {"type": "object"}}]
    assert len({tool.definition_hash for tool in map(McpTool.model_validate, [WIRE, *changed])}) == 4


@pytest.mark.slow
@pytest.mark.skipif(not DUMPS.is_dir(), reason="the tools of real servers are not here")
def test_every_tool_of_433_real_servers_comes_out_as_it_went_in() -> None:
    read, without_schema = 0, 0
    for path in sorted(DUMPS.glob("*.json")):
        for raw in json.loads(path.read_text(encoding="utf-8"))["tools"]:
            if "inputSchema" not in raw:
                # The protocol requires a schema; how a listing treats a tool without one is not tested here.
                without_schema += 1
                continue
            read += 1
            expected = {key: value for key, value in raw.items() if value is not None}
            assert McpTool.model_validate(raw).model_dump(mode="json") == expected, f"{path.name}: {raw['name']}"
    assert read > 10_000
    assert without_schema < 10
