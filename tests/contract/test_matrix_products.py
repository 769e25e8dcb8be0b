"""A matrix product may warn of invalid values where there are none, which depends on the processor: none does."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.contract.sources import FILES, PACKAGE, nodes_of, tree_of


def unguarded(node: ast.AST) -> Iterator[int]:
    """The lines with a matrix product outside of `np.errstate`."""
    if isinstance(node, ast.With) and any("np.errstate(" in ast.unparse(item) for item in node.items):
        return
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult):
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from unguarded(child)


def test_every_matrix_product_is_guarded() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in FILES
        if any(isinstance(node, ast.MatMult) for node in nodes_of(path))
        for line in unguarded(tree_of(path))
    }
    assert not found, "use search.ranker.weighed or np.einsum, or np.errstate around it"


def test_a_product_is_seen_and_a_guard_as_well() -> None:
    assert list(unguarded(ast.parse("a = b @ c\nwith np.errstate(all='ignore'):\n    d = b @ c\na @= b"))) == [1, 4]
