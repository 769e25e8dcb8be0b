"""A script as the type checker reads it: the same lines, with what would make the checker guess taken out. Pure.

The checker takes `{"a": 1}` for a dict of numbers for ever, and annotations at their word; Python does neither. So
displays and annotations become Any, and calls of tools return their results with or without `await`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from mcp_optimizer.scripts.call_sites import CallSites

GATE = "mcp_gate"
"""Called before the first line: where it stops, the script was checked and nothing of it ran."""

LINES_BEFORE = 1

JOINED = "mcp_joined"
"""In the place of `", ".join`, of which the checker says less."""

LOADED = "mcp_loaded"
"""In the place of `json.loads`, whose parameter the checker does not mind."""

_ANY, _ANYTHING, _ALL, _TOGETHER = "McpAny", "mcp_any", "mcp_gathered", "mcp_together_"
_MOST_TOGETHER = 6

PREAMBLE = "\n".join(
    [
        "from typing import Any, Iterable, Literal, NotRequired, TypedDict, TypeVar, overload",
        "import asyncio as asyncio, datetime as datetime, json as json, math as math, re as re",
        f"{_ANY} = Any",
        f"def {GATE}() -> Any: ...",
        f"def {_ANYTHING}(given: Any, *more: Any, **others: Any) -> Any: ...",
        f"def {JOINED}(texts: Iterable[str]) -> str: ...",
        f"def {LOADED}(text: str | bytes) -> Any: ...",
        *(f'T{number} = TypeVar("T{number}")' for number in range(_MOST_TOGETHER)),
        f"def {_ALL}(*given: T0) -> list[T0]: ...",
        *(
            f"def {_TOGETHER}{count}({', '.join(f'a{number}: T{number}' for number in range(count))}) -> "
            f"tuple[{', '.join(f'T{number}' for number in range(count))}]: ..."
            for count in range(1, _MOST_TOGETHER + 1)
        ),
        "def call(name: Any, /, *given: Any, **named: Any) -> Any: ...",
        "def parallel(name: Any, items: Any, **named: Any) -> Any: ...",
        "def find(text: Any, **named: Any) -> Any: ...",
        "ToolError = RuntimeError",
    ]
)

KNOWN_AT_RUN_TIME = frozenset(
    "FileExistsError FileNotFoundError ImportError IsADirectoryError ModuleNotFoundError NotADirectoryError "
    "PermissionError UnboundLocalError UnicodeDecodeError UnicodeEncodeError filter format getattr hasattr map open "
    "setattr".split()
)
"""Names that scripts have and the checker does not know."""

UNKNOWN_AT_RUN_TIME = frozenset("EnvironmentError IOError copyright credits exit help license quit".split())
"""Names that the checker knows and scripts do not have."""


def prepared(script: str, tree: ast.Module, sites: CallSites) -> str:
    """The text to check."""
    text = _Text(script)
    _Preparation(text, sites).read(tree)
    return f"{GATE}()\n{text.changed()}"


def preamble(variables: Collection[str]) -> str:
    """What every script knows, for the checker. `variables` are those that this one is given."""
    names = sorted({*KNOWN_AT_RUN_TIME, *(name for name in variables if name.isidentifier())})
    return "\n".join([PREAMBLE, *(f"{name}: Any" for name in names)])


class _Preparation:
    """Finds what is to be changed. Not inside f-strings, where older Pythons do not know the places."""

    def __init__(self, text: _Text, sites: CallSites) -> None:
        self._text = text
        self._sites = sites

    def read(self, tree: ast.AST) -> None:
        # (node, whether it is an argument of a tool, whether it is inside a display that is already Any)
        waiting: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]
        while waiting:
            node, is_argument, is_inside = waiting.pop()
            if isinstance(node, ast.JoinedStr):
                continue
            is_display = isinstance(node, ast.Dict | ast.List | ast.Set) and _is_read(node)
            if isinstance(node, ast.expr) and is_display and not is_argument and not is_inside:
                self._text.wrap(node, f"{_ANYTHING}(", ")")
            self._change(node)
            is_tool = isinstance(node, ast.expr) and self._sites.is_tool_call(node)
            # The inside of a display in an argument belongs to it, that of a call inside does not.
            is_argument = is_tool or (is_argument and isinstance(node, ast.Dict | ast.List | ast.Set | ast.keyword))
            waiting += [(child, is_argument, is_display and not is_tool) for child in ast.iter_child_nodes(node)]

    def _change(self, node: ast.AST) -> None:
        match node:
            case ast.Await(value=value) if self._sites.is_tool_call(value) or _is_gather(value):
                self._text.replace(node, "await", "     ")
            case ast.Call(
                func=ast.Attribute(value=ast.Constant(value=str()), attr="join") as func, args=[_], keywords=[]
            ):
                self._text.put(func, JOINED)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="json"), attr="loads") as func, args=[_], keywords=[]):
                self._text.put(func, LOADED)
            case ast.Call(func=ast.Name(id="sorted" | "max" | "min"), args=[over]):
                self._applied(_keyed(node), over)
            case ast.Call(func=ast.Attribute(value=over, attr="sort"), args=[]):
                self._applied(_keyed(node), over)
            case ast.Call(func=ast.Name(id="map" | "filter"), args=[ast.Lambda() as applied, over]):
                self._applied(applied, over)
            case ast.Call(func=func) if _is_gather(node):
                self._text.put(func, self._gathering(node))
            case ast.arg(annotation=ast.expr() as annotation):
                self._text.put(annotation, _ANY)
            case ast.FunctionDef(returns=ast.expr() as annotation):
                self._text.put(annotation, _ANY)
            case ast.AnnAssign(annotation=annotation):
                self._text.put(annotation, _ANY)
            case ast.ImportFrom(module="__future__"):
                self._text.put(node, "pass")

    def _applied(self, applied: ast.expr | None, over: ast.expr) -> None:
        """What a lambda does to each element, as a comprehension: the checker knows nothing of a lambda's parameter."""
        if not isinstance(applied, ast.Lambda) or isinstance(over, ast.Starred) or any(_is_delicate(over, applied)):
            return
        names, elements = applied.args, self._text.of(over)
        is_plain = len(names.args) == 1 and not (names.defaults or names.vararg or names.kwarg or names.kwonlyargs)
        if is_plain and elements and self._text.put_until(applied, applied.body, f"{_ANYTHING}([("):
            self._text.wrap(applied.body, "", f") for {names.args[0].arg} in {elements}])")

    def _gathering(self, node: ast.Call) -> str:
        """The function of ours with the type of this `gather`."""
        args = node.args
        if node.keywords or not args:
            return _ANYTHING
        if len(args) == 1 and isinstance(args[0], ast.Starred):
            return _ALL
        are_tools = all(map(self._sites.is_tool_call, args)) and len(args) <= _MOST_TOGETHER
        return f"{_TOGETHER}{len(args)}" if are_tools else _ANYTHING


def _keyed(node: ast.Call) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg == "key"), None)


def _is_delicate(*nodes: ast.AST) -> Iterator[bool]:
    """Whether there is something inside that means another thing in a comprehension, or stands in no certain place."""
    kinds = (ast.NamedExpr, ast.Await, ast.JoinedStr, ast.Yield)
    return (isinstance(inner, kinds) for node in nodes for inner in ast.walk(node))


def _is_read(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None) or ast.Load(), ast.Load)


def _is_gather(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    into = node.func
    if isinstance(into, ast.Attribute):
        return into.attr == "gather" and isinstance(into.value, ast.Name) and into.value.id == "asyncio"
    return isinstance(into, ast.Name) and into.id == "gather"


class _Text:
    """A script's text and changes within its lines."""

    def __init__(self, script: str) -> None:
        self._lines = [line.encode("utf-8", "replace") for line in script.split("\n")]
        self._opened: dict[tuple[int, int], str] = {}
        self._closed: dict[tuple[int, int], str] = {}
        self._put: dict[tuple[int, int], tuple[int, str]] = {}
        """In the place of so many bytes, another text."""

    def replace(self, node: ast.expr, old: str, new: str) -> None:
        """Replace the beginning of a node, if it is what is expected."""
        at = node.col_offset
        if self._lines[node.lineno - 1][at : at + len(old)] == old.encode():
            self._put[node.lineno, at] = len(old), new

    def put(self, node: ast.expr | ast.stmt, new: str) -> None:
        """Put a text in the place of a node that stands on one line."""
        if node.lineno == node.end_lineno and node.end_col_offset is not None:
            self._put[node.lineno, node.col_offset] = node.end_col_offset - node.col_offset, new

    def of(self, node: ast.expr) -> str:
        """The text of a node that stands on one line, in brackets; otherwise nothing."""
        line = self._lines[node.lineno - 1]
        found = line[node.col_offset : node.end_col_offset] if node.lineno == node.end_lineno else b""
        return f"({found.decode('utf-8', 'replace')})" if found else ""

    def put_until(self, node: ast.expr, inner: ast.expr, new: str) -> bool:
        """Put a text in the place of the beginning of a node, up to one inside it on the same line."""
        if node.lineno != inner.lineno:
            return False
        # The body may begin with brackets of its own, which are no part of it.
        before = self._lines[node.lineno - 1][node.col_offset : inner.col_offset]
        if b"(" in before or node.end_col_offset != inner.end_col_offset or node.end_lineno != inner.end_lineno:
            return False
        self._put[node.lineno, node.col_offset] = len(before), new
        return True

    def wrap(self, node: ast.expr, before: str, after: str) -> None:
        """Put text around a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        opened, closed = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        self._opened[opened] = self._opened.get(opened, "") + before
        # Outer nodes come first, and end after what is inside them.
        self._closed[closed] = after + self._closed.get(closed, "")

    def changed(self) -> str:
        lines = list(self._lines)
        for place in sorted({*self._opened, *self._closed, *self._put}, reverse=True):
            line, column = place
            length, new = self._put.get(place, (0, ""))
            added = f"{self._closed.get(place, '')}{self._opened.get(place, '')}{new}".encode()
            lines[line - 1] = lines[line - 1][:column] + added + lines[line - 1][column + length :]
        return b"\n".join(lines).decode("utf-8", "replace")
