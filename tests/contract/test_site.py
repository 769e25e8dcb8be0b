"""The site has every page, each link of a page leads somewhere, and nothing is fetched from elsewhere.

`make site` builds it whole; what is here needs no builder.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mcp_optimizer.config.known_clients.table import CLIENTS
from tests.conftest import ROOT

CLIENT_PAGES = sorted(path for path in (ROOT / "docs" / "clients").glob("*.md") if path.stem != "libraries")
FIGURES = (ROOT / "benchmarks" / "results" / "real_clients.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "scripts" / "make_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def test_every_page_of_the_documentation_is_in_the_navigation_and_each_once(site: ModuleType) -> None:
    listed = [entry.page for entry in site.navigation()]
    ours = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert ours - set(listed) == set()
    assert sorted({page for page in listed if listed.count(page) > 1}) == []


def test_links_of_all_pages_lead_to_files_that_the_site_takes_along(site: ModuleType) -> None:
    taken = site.wanted()
    assert "benchmarks/results/real_clients.md" in taken
    for page in [name for name in taken if name.endswith(".md")]:
        assert {target for target in site.links(page) if target != "README.md"} <= taken.keys()


def test_links_are_as_they_are_between_the_places_of_the_site(site: ModuleType) -> None:
    assert "](../benchmarks/results/real_clients.md)" in site.for_the_site("docs/clients/codex.md")
    assert "](architecture.md)" in site.for_the_site("CONTRIBUTING.md")


def test_a_link_that_leads_nowhere_and_a_foreign_script_are_found(site: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">b</a><a href="c.html">c</a><img src="https://x.example/y.png">'
    )
    (tmp_path / "b.html").write_text('<p id="there"></p><a href="a.html">a</a><script src="//x.example/z.js"></script>')
    (tmp_path / "s.css").write_text("@import 'https://x.example/f.css';")
    assert list(site.problems(tmp_path)) == [
        "a.html loads https://x.example/y.png",
        "a.html: b.html#here has no part here",
        "a.html: c.html does not exist",
        "b.html loads //x.example/z.js",
        "s.css loads something from elsewhere",
    ]


@pytest.mark.parametrize("page", CLIENT_PAGES, ids=lambda path: path.stem)
def test_the_page_of_a_client_shows_what_was_measured_with_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    title = CLIENTS[page.stem].title
    assert text.startswith(f"# {title}\n")
    shown = re.search(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert shown is not None
    assert re.search(
        rf"^\| {re.escape(title)} [\d.]+ \| {shown[1]} \| {shown[2]} \| {shown[3]} \|", FIGURES, re.MULTILINE
    )


def test_the_figures_of_libraries_are_what_was_measured() -> None:
    text = (ROOT / "docs" / "clients" / "libraries.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S.* [\d.]+) \| ([\d,]+) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert len(rows) == 5
    assert [row for row in rows if f"| {row[0]} | - | {row[1]} | {row[2]} |" not in FIGURES] == []


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/compare.md"])
def test_first_requests_are_quoted_as_they_were_measured(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    quoted = re.findall(r"^\| [^|]+ \| ([\d,]+)(?: tokens)? \| ([\d,]+) \|", text, re.MULTILINE)
    firsts = re.findall(r"^\| [^|]+ \| [^|]+ \| ([\d,]+) \| ([\d,]+) \| \d", FIGURES, re.MULTILINE)
    assert len(set(quoted) & set(firsts)) >= 4
