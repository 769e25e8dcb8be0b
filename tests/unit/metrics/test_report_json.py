"""The output of `report --json`: programs read it, so its keys and values must not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.domain.events import Event
from mcp_optimizer.metrics.report import report_values
from mcp_optimizer.metrics.savings import PLAIN_PRICES, Prices
from tests.unit.metrics.reports import EVENTS, PRICES, report_on_dumps

GOLDEN = Path(__file__).parent / "golden"
WORDING = {"advice", "assumptions", "measures", "sentence", "why"}
"""Texts for people, whose wording may change, so only the number of sentences is compared."""


def comparable(value: Any, key: str = "") -> Any:
    """The value without parts that differ in each run or whose wording may change."""
    if key == "timestamp":
        assert isinstance(value, str)
        return ""
    if isinstance(value, dict):
        return {name: comparable(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [comparable(inner, key) for inner in value]
    return "…" if key in WORDING else value


@pytest.mark.parametrize(
    ("name", "events", "prices"),
    [("in_money", EVENTS, PRICES), ("without_prices", EVENTS, PLAIN_PRICES), ("unused", [], PLAIN_PRICES)],
)
async def test_the_json_of_a_report_is_byte_for_byte_what_programs_read_until_now(
    tmp_path: Path, name: str, events: list[Event], prices: Prices
) -> None:
    values = report_values(await report_on_dumps(tmp_path, events, prices))
    written = json.dumps(comparable(values), ensure_ascii=False, indent=1) + "\n"
    assert written == (GOLDEN / f"report_{name}.json").read_text(encoding="utf-8")


async def test_where_nothing_was_recorded_the_usage_is_null(tmp_path: Path) -> None:
    values = report_values(await report_on_dumps(tmp_path, None))
    assert list(values)[-1] == "usage"
    assert values["usage"] is None
