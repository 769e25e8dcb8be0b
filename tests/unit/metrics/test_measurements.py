"""What the parts of a definition cost in each phase, spelled as the schema-compression document spells it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.metrics.tool_sizes import TokenMeasurement, measure_tool_tokens, measurements
from mcp_optimizer.profiles.tiers import DEFAULT_BUDGETS, ProfileName
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import Choking, mcp_tool
from tests.unit.metrics.reports import write_dumps

COUNTER = TokenCounter()


@pytest.mark.requirement("TM-5")
def test_a_measurement_has_the_tokens_of_schema_description_and_all_under_the_documents_names() -> None:
    tool = mcp_tool("create_card", "Create a card on a board", {"title": {"type": "string"}})
    measured = measure_tool_tokens(tool, COUNTER, "baseline")
    schema = '{"type":"object","properties":{"title":{"type":"string"}}}'
    assert measured.model_dump(mode="json") == {
        "toolName": "create_card",
        "schemaTokens": COUNTER.count_tokens(schema),
        "descriptionTokens": COUNTER.count_tokens("Create a card on a board"),
        "totalTokens": COUNTER.count_tool_tokens(tool),
        "phase": "baseline",
    }
    assert TokenMeasurement.model_validate_json(measured.model_dump_json()) == measured


@pytest.mark.requirement("TM-5")
@pytest.mark.parametrize("wrong", [{"phase": "phase4"}, {"schemaTokens": -1}, {"totalTokens": None}])
def test_a_measurement_of_another_phase_or_of_less_than_nothing_is_refused(wrong: dict[str, object]) -> None:
    right = measure_tool_tokens(mcp_tool("t"), COUNTER, "phase1").model_dump()
    with pytest.raises(ValidationError):
        TokenMeasurement.model_validate({**right, **wrong})


def test_what_the_tokenizer_gives_up_on_is_measured_as_nothing() -> None:
    measured = measure_tool_tokens(mcp_tool("t", "poison"), Choking(), "baseline")
    assert (measured.description_tokens, measured.total_tokens) == (0, 0)
    assert measured.schema_tokens > 0


@pytest.mark.requirement("CX-4", "TM-5")
async def test_every_tool_is_measured_in_two_phases_and_registered_ones_in_four(tmp_path: Path) -> None:
    optimizer = Optimizer.from_dumps(write_dumps(tmp_path), load_settings({"encoder": "none"}))
    optimizer.start()
    await optimizer.catalog.caught_up()
    try:
        lists, snapshot = optimizer.lists, optimizer.snapshot
        lists.use(["create_issue"], {**DEFAULT_BUDGETS, ProfileName.MINIMAL: optimizer.own_tokens + 100})
        rows = measurements(snapshot, optimizer.forms, lists, ProfileName.MINIMAL, COUNTER)
        registered = set(lists.profiles().by_name[ProfileName.MINIMAL].tools)
        found = {(row.tool_name, row.phase): row for row in rows}
        assert 0 < len(registered) < len(snapshot.running) == 5
        for tool in snapshot.running:
            phases = ["baseline", "phase1", "phase2", "phase3"][: 4 if tool.name in registered else 2]
            assert [row.phase for row in rows if row.tool_name == tool.name] == phases
            totals = [found[tool.name, row.phase].total_tokens for row in rows if row.tool_name == tool.name]
            assert totals == sorted(totals, reverse=True)
            assert totals[0] == tool.tokens
        for name in registered:
            assert found[name, "phase2"].total_tokens == lists.phases(name).compressed
    finally:
        await optimizer.stop()
