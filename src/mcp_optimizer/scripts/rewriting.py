"""Rewrites a script within its lines, from ordinary Python to the Python that the interpreter supports. Pure.

`del` becomes `pop`; a generator whose elements are taken one by one becomes an iterator, because the interpreter makes
a list of it; a method passed to `sorted` or `map` becomes a function, because the interpreter can only call methods.
Called by `source`; no change adds or removes a line.
"""

from __future__ import annotations

import ast

from mcp_optimizer.scripts.names import MODULES
from mcp_optimizer.scripts.syntax import called, in_order


class ChangedText:
    """A script's text, and changes to it that never add or remove a line."""

    def __init__(self, script: str) -> None:
        self._data = script.encode("utf-8", "replace")
        self._starts = [0]
        for line in self._data.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._opened: dict[int, list[str]] = {}
        self._closed: dict[int, list[str]] = {}
        self._replaced: dict[int, tuple[int, str]] = {}

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def has(self, node: ast.expr | ast.stmt, text: str) -> bool:
        """Whether the text is at a node's position, which is not certain inside f-strings."""
        start = self._at(node.lineno, node.col_offset)
        return self._data[start : start + len(text.encode())] == text.encode()

    def replace(self, node: ast.expr | ast.stmt, old: str, new: str) -> bool:
        """Replaces the beginning of a node, if it is the expected text."""
        if not self.has(node, old):
            return False
        self._replaced[self._at(node.lineno, node.col_offset)] = (len(old.encode()), new)
        return True

    def wrap(self, node: ast.expr, before: str, after: str) -> None:
        """Puts text around a node. Wrap outer nodes before the nodes inside them."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        self._opened.setdefault(self._at(node.lineno, node.col_offset), []).append(before)
        self._closed.setdefault(self._at(node.end_lineno, node.end_col_offset), []).insert(0, after)

    def changed(self) -> str:
        """The text with all changes applied."""
        pieces: list[bytes] = []
        at = 0
        for place in sorted({*self._opened, *self._closed, *self._replaced}):
            pieces.append(self._data[at:place])
            at = place
            pieces += [text.encode() for text in (*self._closed.get(place, ()), *self._opened.get(place, ()))]
            if place in self._replaced:
                length, new = self._replaced[place]
                pieces.append(new.encode())
                at += length
        pieces.append(self._data[at:])
        return b"".join(pieces).decode("utf-8")


_TYPES = {"str": str, "dict": dict, "list": list, "set": set}
_METHODS = frozenset(name for one in _TYPES.values() for name in dir(one) if not name.startswith("_"))
_GONE = "_mo_gone = "
"""A popped value must not become the value of the last expression, so it is assigned."""


def plainer(script: str, tree: ast.Module) -> str:
    """An equivalent script in simpler Python; the same text if nothing has to change."""
    text = ChangedText(script)
    for node in in_order(tree):
        match node:
            case ast.Delete(targets=targets):
                _delete(node, targets, script, text)
            case ast.Assign(value=ast.GeneratorExp() as made) | ast.NamedExpr(value=ast.GeneratorExp() as made):
                text.wrap(made, "iter(", ")")
            case ast.Call(args=[ast.GeneratorExp() as made, *more]) if called(node) == "next":
                _take_one(node, made, text, is_alone=not more)
            case ast.keyword(arg="key", value=ast.Attribute() as method):
                _as_function(method, text)
            case ast.Call(func=ast.Name(id="map" | "filter"), args=[ast.Attribute() as method, _]):
                _as_function(method, text)
    return text.changed()


def _take_one(node: ast.Call, made: ast.GeneratorExp, text: ChangedText, *, is_alone: bool) -> None:
    """`next(x for x in y)`: a call shares its brackets with a sole generator argument, unless that has its own."""
    if is_alone and (made.end_lineno, made.end_col_offset) == (node.end_lineno, node.end_col_offset):
        if text.replace(node.func, "next", "next(iter"):
            text.wrap(node, "", ")")
    else:
        text.wrap(made, "iter(", ")")


def _as_function(method: ast.Attribute, text: ChangedText) -> None:
    """`str.lower` or `counts.get`, passed to a function that calls it with one value."""
    of, name = method.value, method.attr
    if not isinstance(of, ast.Name) or name not in _METHODS or method.lineno != method.end_lineno:
        return
    if of.id in _TYPES:
        text.replace(method, f"{of.id}.{name}", f"(lambda _mo_x: _mo_x.{name}())")
    elif of.id not in MODULES and text.has(method, f"{of.id}.{name}"):
        text.wrap(method, "(lambda _mo_x: ", "(_mo_x))")


def _delete(node: ast.Delete, targets: list[ast.expr], script: str, text: ChangedText) -> None:
    """Unchanged if a target is no plain expression: the check then reports that `del` is not supported."""
    written = ast.get_source_segment(script, node)
    parts = [_without(target, script) for target in targets]
    is_plain = not any(isinstance(inner, ast.Call | ast.Await | ast.JoinedStr) for inner in ast.walk(node))
    if written is not None and "\n" not in written and is_plain and all(parts):
        text.replace(node, written, "; ".join(parts))


def _without(target: ast.expr, script: str) -> str:
    """A statement that removes a target; "" if there is none."""
    if isinstance(target, ast.Name):
        return f"{target.id} = None"
    if not isinstance(target, ast.Subscript):
        return ""
    of, key = ast.get_source_segment(script, target.value), ast.get_source_segment(script, target.slice)
    if of is None or key is None:
        return ""
    return f"{of}[{key}] = []" if isinstance(target.slice, ast.Slice) else f"{_GONE}{of}.pop({key})"
