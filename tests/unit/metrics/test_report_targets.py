"""The targets of one example, a kanban server with 65 tools, appear in that example's report and in no other."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from mcp_optimizer.cli.report_tables import show_report
from mcp_optimizer.dashboard.report_page import report_page
from mcp_optimizer.metrics.report import Report, report_values
from mcp_optimizer.metrics.tool_sizes import phase_metrics
from mcp_optimizer_demo.targets import KANBAN_TARGETS
from tests.unit.metrics.reports import EVENTS, report_on_dumps


@pytest.fixture
async def report(tmp_path: Path) -> Report:
    return await report_on_dumps(tmp_path, EVENTS)


def terminal(report: Report) -> str:
    console = Console(width=100, file=io.StringIO(), record=True)
    show_report(console, report)
    return console.export_text()


async def test_a_report_of_ones_own_servers_names_no_target(report: Report) -> None:
    assert "target" not in terminal(report)
    assert "target" not in report_page(report).split("</style>")[1]
    assert "missed" not in report_page(report)
    assert [list(phase) for phase in report_values(report)["phases"]] == [["phase_name", "total_reduction"]] * 3
    assert "profile registration" in terminal(report)


@pytest.mark.requirement("TM-4")
async def test_the_example_shows_each_phase_against_its_target(report: Report) -> None:
    example = replace(report, phases=tuple(phase_metrics(5_600, 24_299, 2_601, KANBAN_TARGETS)))
    assert [(phase["target_reduction"], phase["achieved"]) for phase in report_values(example)["phases"]] == [
        (5_600, True),
        (24_300, False),
        (2_000, True),
    ]
    assert "24,300" in terminal(example)
    assert "24,300" in report_page(example)
    assert report_page(example).count("reached") == 2
