"""What the names of a script stand for that are given a constant once, so that arguments can be checked. Pure."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable

_MOST_NODES = 2_000
_DEEPEST = 8


class Constants:
    """The names of one script that are bound exactly once."""

    def __init__(self, nodes: Iterable[ast.AST], bound: Iterable[str]) -> None:
        found, times = list(nodes), Counter(bound)
        self._parents = {child: node for node in found for child in ast.iter_child_nodes(node)}
        self._values: dict[str, ast.expr] = {}
        self._uses: dict[str, list[ast.Name]] = {}
        for node in found:
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    self._uses.setdefault(name, []).append(node)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if times[name] == 1:
                    self._values[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if times[name] == 1:
                    self._values[name] = value

    def resolved(self, node: ast.expr) -> ast.expr | None:
        """An expression with names of unchanging constants replaced by what they stand for; None if it gets large."""
        budget = [_MOST_NODES]
        found = self._resolved(node, 0, budget)
        return found if budget[0] > 0 else None

    def _resolved(self, node: ast.expr, depth: int, budget: list[int]) -> ast.expr:
        budget[0] -= 1
        if budget[0] <= 0 or depth > _DEEPEST:
            return node
        match node:
            case ast.Name(id=name) if (value := self._values.get(name)) is not None and self._is_constant(name, value):
                return self._resolved(value, depth + 1, budget)
            case ast.List(elts=parts):
                return ast.List([self._resolved(part, depth + 1, budget) for part in parts], ast.Load())
            case ast.Dict(keys=keys, values=values):
                return ast.Dict(keys, [self._resolved(value, depth + 1, budget) for value in values])
        return node

    def _is_constant(self, name: str, value: ast.expr) -> bool:
        """Whether nothing can change what the name stands for: it is immutable, or only read."""
        if isinstance(value, ast.Constant | ast.UnaryOp):
            return True
        if not isinstance(value, ast.List | ast.Dict | ast.ListComp):
            return False
        return all(map(self._is_only_read, self._uses.get(name, ())))

    def _is_only_read(self, use: ast.Name) -> bool:
        parent = self._parents.get(use)
        match parent:
            case ast.keyword() | ast.For() | ast.comprehension() | ast.Dict() | ast.List():
                return True
            case ast.Subscript(ctx=ast.Load(), value=value):
                # An element may be an object that is changed.
                return value is use and not isinstance(self._parents.get(parent), ast.Subscript | ast.Attribute)
            case ast.Call(func=ast.Name(id="parallel" | "len"), args=args):
                return use in args
        return False
