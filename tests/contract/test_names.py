"""Each name stands for one class, and retired names do not return, so that a search for a word finds one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.contract.sources import FILES, PACKAGE, nodes_of, text_of, tree_of

ROOT = Path(__file__).parents[2]

SHARED_NAMES: set[str] = set()
"""Names that stand for two classes. Shorten this list; do not add to it."""

RETIRED_MODULES = {"passing", "face", "lull", "registrar", "registration", "epitaph", "wires"}
RETIRED_NAMES = {"passing", "face", "lull", "registrar", "epitaph", "wires", "let_go"}
RETIRED_METHODS = {"meet", "part", "let_go"}
"""Retired as methods only. `part`, once the method for a client that left, is a good name for a variable."""

RETIRED_WORDS = re.compile(r"\b(face|lull|registrar|epitaph|wires|let_go)\b", re.IGNORECASE)
"""Searched for in comments and strings too. `passing` is not here, because it is an ordinary verb."""


def place(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def names(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Every name in a file: its line, the name, and whether it names a function or an attribute."""
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name, True
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr, True
        elif isinstance(node, ast.ClassDef):
            yield node.lineno, node.name.lower(), False
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id, False
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg, False


def test_no_two_public_classes_have_the_same_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(place(path))
    assert {name: places for name, places in found.items() if len(places) > 1 and name not in SHARED_NAMES} == {}
    assert {name for name in SHARED_NAMES if len(found[name]) < 2} == set()


def test_no_module_has_a_retired_name() -> None:
    assert [place(path) for path in FILES if RETIRED_MODULES & {path.stem, *path.relative_to(PACKAGE).parts}] == []


def test_nothing_is_called_by_a_retired_name() -> None:
    assert [
        f"{place(path)}:{line}: {name}"
        for path in FILES
        for line, name, is_called in names(path)
        if name.strip("_") in RETIRED_NAMES or (is_called and name.strip("_") in RETIRED_METHODS)
    ] == []


def test_no_retired_word_is_found_by_a_search_of_the_sources() -> None:
    elsewhere = (path for folder in ("tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py"))
    assert [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*FILES, *elsewhere]
        if path != Path(__file__)
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if RETIRED_WORDS.search(line)
    ] == []
