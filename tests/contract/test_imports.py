"""Rooms of this package import downwards only."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.contract import sources
from tests.contract.sources import PACKAGE, nodes_of, tree_of

# Highest first. A room may import only rooms below it; rooms on one line do not import each other.
LEVELS = [
    {"__main__"},
    {"cli"},
    {"app", "server"},
    {"dashboard", "serving"},
    {"metrics"},
    {"profiles", "scripts"},
    {"gateway"},
    {"access"},
    {"catalog", "identity", "results"},
    {"db", "upstream"},
    {"compression", "config"},
    {"largejson", "search", "token_counter"},
    {"domain", "errors", "limits", "runtime"},
]


def room(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def level(name: str) -> int:
    return next(number for number, rooms in enumerate(LEVELS) if name in rooms)


@cache
def opened(path: Path) -> tuple[frozenset[str], bool]:
    """The rooms that a file imports, at its top or inside functions; and whether it says what it does."""
    found: set[str] = set()
    for node in nodes_of(path):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            is_package = node.module == "mcp_optimizer"
            names = [f"{node.module}.{alias.name}" for alias in node.names] if is_package else [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("mcp_optimizer.")}
    return frozenset(found - {"__version__"}), bool(ast.get_docstring(tree_of(path)))


def imports(path: Path) -> frozenset[str]:
    return opened(path)[0]


FILES = [path for path in sources.FILES if path != PACKAGE / "__init__.py"]


def test_a_room_imports_only_rooms_below_it() -> None:
    assert [
        f"{path.relative_to(PACKAGE)} imports {imported}, which is not below it"
        for path in FILES
        for imported in imports(path) - {room(path)}
        if level(room(path)) >= level(imported)
    ] == []


def test_every_room_has_its_place() -> None:
    assert {room(path) for path in FILES} == set().union(*LEVELS)


def test_the_package_root_holds_at_most_eight_files() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 8


def test_every_module_opens_by_saying_what_it_does() -> None:
    silent = [str(path) for path in FILES if not opened(path)[1]]
    assert silent == []
