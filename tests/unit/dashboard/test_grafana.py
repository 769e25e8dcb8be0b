"""The board for Grafana asks for metrics and labels that the gateway has."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from mcp_optimizer.domain.events import Event, EventKind
from mcp_optimizer.metrics.prometheus import Meters
from mcp_optimizer.metrics.recorder import Recorder
from mcp_optimizer.metrics.savings import Assumptions
from tests.conftest import ROOT
from tests.unit.catalogs import down, live_catalog, mcp_tool, running

BOARD = ROOT / "deploy" / "grafana" / "mcp-optimizer.json"
_GROUPED = re.compile(r"by \(([^)]*)\)")
_CHOSEN = re.compile(r"(mcp_optimizer_\w+)(?:\{([^}]*)\})?")
_OF_A_HISTOGRAM = {"le"}


async def exported() -> dict[str, set[str]]:
    """The labels of each metric that a gateway with some use exports."""
    catalog = await live_catalog(running("git", mcp_tool("create_issue")), down("mail"))

    async def nowhere() -> None:
        return None

    meters = Meters(
        lambda: catalog.snapshot, Recorder(nowhere), lambda: Assumptions(own_tokens=346), lambda: {"too large": 1}
    )
    meters.take(Event(1.0, EventKind.CALL, "s", "claude", "git", "create_issue", 40, 100, 5_000, 250.0, True, True))
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(meters.exposition()[0].decode()):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


def queries() -> Iterator[tuple[str, str, str]]:
    """The title of each panel, a query of it, and how its lines are called."""
    board: dict[str, Any] = json.loads(BOARD.read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


async def test_every_query_asks_for_a_metric_and_labels_that_exist() -> None:
    known = await exported()
    asked = 0
    for title, query, legend in queries():
        grouped = {label.strip() for labels in _GROUPED.findall(query) for label in labels.split(",")}
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= grouped, title
        for metric, chosen in _CHOSEN.findall(query):
            asked += 1
            assert metric in known, f"{title}: no metric is called {metric}"
            labels = grouped | set(re.findall(r"(\w+)\s*(?:=|!=)", chosen))
            assert labels <= known[metric] | _OF_A_HISTOGRAM, f"{title}: {metric} has no such labels"
    assert asked >= 15


def test_no_two_panels_lie_on_each_other() -> None:
    places: set[tuple[int, int]] = set()
    for panel in json.loads(BOARD.read_text())["panels"]:
        box = panel["gridPos"]
        cells = {(x, y) for x in range(box["x"], box["x"] + box["w"]) for y in range(box["y"], box["y"] + box["h"])}
        assert not cells & places, panel["title"]
        places |= cells
        assert box["x"] + box["w"] <= 24
