"""Ordinary Python that the scripts' interpreter lacks, written in Python that it has, on the same lines. Pure.

`del` becomes `pop`, and a generator that somebody takes single elements of becomes an iterator: the interpreter makes
a list of it. Called before a script is read, so that the type check sees the same text.
"""

from __future__ import annotations

import ast

from mcp_optimizer.scripts.changed_text import ChangedText
from mcp_optimizer.scripts.syntax import called, in_order

_GONE = "_mo_gone = "
"""What was popped is nobody's last expression."""


def plainer(script: str, tree: ast.Module) -> str:
    """The script with the same meaning; the same text if there is nothing to change."""
    text = ChangedText(script)
    for node in in_order(tree):
        match node:
            case ast.Delete(targets=targets):
                _delete(node, targets, script, text)
            case ast.Assign(value=ast.GeneratorExp() as made) | ast.NamedExpr(value=ast.GeneratorExp() as made):
                text.wrap(made, "iter(", ")")
            case ast.Call(args=[ast.GeneratorExp() as made, *more]) if called(node) == "next":
                _take_one(node, made, text, is_alone=not more)
    return text.changed()


def _take_one(node: ast.Call, made: ast.GeneratorExp, text: ChangedText, *, is_alone: bool) -> None:
    """`next(x for x in y)`: the brackets of a call are those of its only argument, unless that has its own."""
    if is_alone and (made.end_lineno, made.end_col_offset) == (node.end_lineno, node.end_col_offset):
        if text.replace(node.func, "next", "next(iter"):
            text.wrap(node, "", ")")
    else:
        text.wrap(made, "iter(", ")")


def _delete(node: ast.Delete, targets: list[ast.expr], script: str, text: ChangedText) -> None:
    """Left as it is where a target is no plain expression: the check then says that `del` does not work."""
    written = ast.get_source_segment(script, node)
    parts = [_without(target, script) for target in targets]
    is_plain = not any(isinstance(inner, ast.Call | ast.Await | ast.JoinedStr) for inner in ast.walk(node))
    if written is not None and "\n" not in written and is_plain and all(parts):
        text.replace(node, written, "; ".join(parts))


def _without(target: ast.expr, script: str) -> str:
    """A statement that takes a target away; nothing if there is none."""
    if isinstance(target, ast.Name):
        return f"{target.id} = None"
    if not isinstance(target, ast.Subscript):
        return ""
    of, key = ast.get_source_segment(script, target.value), ast.get_source_segment(script, target.slice)
    if of is None or key is None:
        return ""
    return f"{of}[{key}] = []" if isinstance(target.slice, ast.Slice) else f"{_GONE}{of}.pop({key})"
