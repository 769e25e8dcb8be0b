"""The files of the package and what they consist of, read once for all contract tests of a process."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "mcp_optimizer"
FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def tree_of(path: Path) -> ast.Module:
    return _trees()[path]


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree, as `ast.walk` has them: most tests look at each of them. Those that only say whether
    a name is read or set, which are a third of all, stay with their names.
    """
    found: list[ast.AST] = [tree_of(path)]
    for node in found:
        for field in node._fields:
            value = getattr(node, field, None)
            values = value if isinstance(value, list) else (value,)
            found.extend(one for one in values if isinstance(one, ast.AST) and not isinstance(one, ast.expr_context))
    return tuple(found)


def parsed() -> Iterator[tuple[str, tuple[ast.AST, ...]]]:
    """The nodes of each file, by its path in the package."""
    for path in FILES:
        yield path.relative_to(PACKAGE).as_posix(), nodes_of(path)


@cache
def _trees() -> Mapping[Path, ast.Module]:
    # They stay until the end. The garbage collector would look through them each time that they are a quarter more,
    # which takes longer than to read them, and later for nothing.
    gc.collect()
    gc.disable()
    try:
        return {path: ast.parse(text_of(path)) for path in FILES}
    finally:
        gc.enable()
        gc.freeze()
