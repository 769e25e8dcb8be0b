"""Figures are shown as what they are: what cost more in its own words and colour, what is broken before all else."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mcp_optimizer.cli.report_tables import NO_HISTORY, show_report
from mcp_optimizer.dashboard.overview_pages import Overview, ServerRow, catalog_map, overview_page, shared_beginning
from mcp_optimizer.dashboard.report_page import report_page
from mcp_optimizer.dashboard.search_page import HitShown, SearchPage, search_page
from mcp_optimizer.domain.events import Event, EventKind
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.gateway.found_tools import likelihood
from mcp_optimizer.metrics.advice import troubles
from mcp_optimizer.metrics.report import Report
from mcp_optimizer.metrics.savings import Assumptions
from mcp_optimizer.metrics.usage import Usage, make_usage
from mcp_optimizer.metrics.weights import Weight
from tests.unit.catalogs import down, live_catalog, mcp_tool, running
from tests.unit.metrics.reports import EVENTS, report_on_dumps

CATALOG = [Weight("git", "create_issue", 900), Weight("git", "list_issues", 900)]
GIT = ServerRow("git", "running", 2, 1_800)


def usage(*events: Event, others: int = 0) -> Usage:
    return make_usage(events, CATALOG, Assumptions(own_tokens=346), others=others)


def searches(count: int) -> Usage:
    return usage(*(Event(n, EventKind.FIND, "s", tokens=300, baseline_tokens=1_800) for n in range(count)))


def overview(told: Usage, broken: Sequence[str] = (), servers: Sequence[ServerRow] = (GIT,)) -> str:
    return overview_page(Overview("1", 346, CATALOG, servers, told, [], True, broken))


def test_what_cost_more_is_never_a_negative_saving_and_never_in_the_colour_of_savings() -> None:
    page = overview(searches(96))
    assert "tokens more than listing all tools would have." in page
    assert "96 searches led to no call" in page
    assert 'class="figure main worse"' in page
    assert "Paid more at full price" in page
    assert "-" + "1" not in page.partition('class="figures"')[2].partition("</dl>")[0]


def test_what_was_saved_is_in_the_colour_of_savings() -> None:
    page = overview(usage(Event(1, EventKind.CALL, "s", tokens=10, full_tokens=10, baseline_tokens=1_800)))
    assert "Saved at full price" in page
    assert "worse" not in page


def test_what_is_broken_now_stands_first_on_the_overview() -> None:
    page = overview(searches(2), ["`mail` does not run."])
    assert page.index("What to do") < page.index('id="figures"')
    assert "<code>mail</code> does not run." in page


def test_a_page_with_nothing_on_it_says_what_to_do_first() -> None:
    assert "mcp-optimizer init" in overview(usage(), servers=())
    assert "Connect one to /mcp" in overview(usage())


def test_other_configurations_are_one_line() -> None:
    assert "Other configurations: 12 events." in overview(usage(others=12))
    assert "Other configurations" not in overview(usage())


async def test_troubles_name_the_server_and_the_command_that_helps() -> None:
    states = (
        running("git", mcp_tool("create_issue")),
        down("mail", "it said `rm -rf`\nand ended"),
        down("wiki", "", ServerStatus.LOGIN_NEEDED),
        *(down(f"x{number}") for number in range(9)),
    )
    told = troubles((await live_catalog(*states)).snapshot)
    assert told[0] == "`mail` does not run: it said 'rm -rf' and ended. Look at it with `mcp-optimizer doctor mail`."
    assert told[-1] == "`wiki` wants a login: `mcp-optimizer login wiki`."
    assert "And 5 more servers that do not run." in told


def test_no_estimate_is_certain_or_impossible() -> None:
    assert [likelihood(score) for score in (0.0, 0.004, 0.456, 0.999, 1.0, 7.0)] == [
        "1 %",
        "1 %",
        "46 %",
        "99 %",
        "99 %",
        "99 %",
    ]


def search(*hits: HitShown, reply: int = 40, baseline: int = 1_800) -> str:
    return search_page(SearchPage("1", "query", hits, 1.0, reply, baseline, 1.0))


def test_a_search_that_finds_nothing_boasts_of_nothing() -> None:
    page = search()
    assert "nothing is returned" in page
    assert "Against all definitions" not in page
    assert "Likely to answer" not in page
    assert "The reply costs" in page


def test_a_search_says_how_likely_it_answers_on_one_scale() -> None:
    hit = HitShown("git", "create_issue", "Creates", 1.0, 40, 900, [])
    page = search(hit)
    assert page.count("99 %") == 2
    assert "97.8 % less" in page
    assert "100 more" in search(hit, reply=1_900)


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        (["browser_click", "browser_close"], "browser_"),
        (["browser_click", "browser_clip"], "browser_"),
        (["git.log.all", "git.log.one"], "git.log."),
        (["click", "close"], ""),
        (["a_", "a_b"], ""),
        (["browser_click"], ""),
        ([], ""),
    ],
)
def test_a_map_leaves_out_what_all_names_of_a_server_begin_with(names: list[str], shared: str) -> None:
    assert shared_beginning(names) == shared


@given(names=st.lists(st.text("ab_", min_size=1, max_size=6), unique=True, max_size=6))
def test_names_without_what_they_share_are_neither_empty_nor_the_same(names: list[str]) -> None:
    shared = shared_beginning(names)
    rest = [name.removeprefix(shared) for name in names]
    assert all(rest)
    assert len(set(rest)) == len(names)


def test_the_whole_name_stays_where_a_tile_is_pointed_at() -> None:
    page = catalog_map([Weight("web", "browser_click", 10), Weight("web", "browser_close", 10)])
    assert ">click<" in page
    assert "browser_click: 10 tokens" in page


def terminal(report: Report) -> str:
    written = io.StringIO()
    show_report(Console(width=100, file=written), report)
    return " ".join(written.getvalue().split())


async def test_a_report_says_what_is_broken_first_and_what_to_do_where_nothing_was_used(tmp_path: Path) -> None:
    report = replace(await report_on_dumps(tmp_path, []), troubles=("`mail` does not run.",))
    text = terminal(report)
    assert text.index("What to do") < text.index("`mail` does not run.") < text.index("what is sent")
    assert NO_HISTORY in text
    page = report_page(report)
    assert page.index("What to do") < page.index("Catalog")


async def test_a_report_says_in_words_what_cost_more_and_counts_other_configurations(tmp_path: Path) -> None:
    report = await report_on_dumps(tmp_path, EVENTS)
    text = terminal(replace(report, usage=replace(searches(96), others=3)))
    assert "tokens more than listing all tools would have." in text
    assert "96 searches led to no call" in text
    assert "Other configurations: 3 events. `report --all-history` includes them." in text
    assert "-1" not in text.partition("difference")[2].partition("* as full")[0]
