"""`python -m benchmarks` lists every benchmark, and every text that names one names one that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.__main__ import benchmarks, docstring, groups, main, module_name

ROOT = Path(__file__).parents[2]
MODULES = {module_name(path): path for path in sorted((ROOT / "benchmarks").rglob("*.py"))}
LISTED = {one.module: one for group in groups() for one in benchmarks(group)}
TEXTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "training").rglob("*.md"),
    *(ROOT / "benchmarks").rglob("*.md"),
    *(path for folder in ("benchmarks", "src", "tests") for path in (ROOT / folder).rglob("*.py")),
    ROOT / "Makefile",
    *ROOT.glob(".ci/*"),
]
NAME = re.compile(r"\bbenchmarks(?:\.[a-z]\w*){1,2}\b(?!\()")
PATH = re.compile(r"\bbenchmarks/[\w/]+\.(?:py|md)\b")


def test_the_list_shows_each_benchmark_on_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    lines = capsys.readouterr().out.splitlines()
    for one in LISTED.values():
        assert len([line for line in lines if line.split()[2:3] == [one.module] and line.endswith(one.summary)]) == 1
    assert "benchmarks.soak" in LISTED


def test_a_module_that_can_be_run_is_listed_or_says_what_starts_it() -> None:
    runnable = {
        name: path
        for name, path in MODULES.items()
        if name != "benchmarks" and '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")
    }
    started_by_others = {name for name, path in runnable.items() if "Started by" in docstring(path)}
    assert set(runnable) == set(LISTED) | started_by_others
    assert not set(LISTED) & started_by_others


def test_a_summary_is_one_short_sentence() -> None:
    wrong = [one.module for one in LISTED.values() if len(one.summary) > 90 or not one.summary.endswith(".")]
    assert wrong == []


def test_benchmarks_named_in_texts_exist() -> None:
    stale = {}
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        wrong = {name for name in NAME.findall(text) if name not in MODULES}
        wrong |= {name for name in PATH.findall(text) if not (ROOT / name).exists()}
        if wrong:
            stale[str(path.relative_to(ROOT))] = wrong
    assert stale == {}
