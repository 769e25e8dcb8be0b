"""Parses a script: finds the tools that it names and makes the text that its worker runs, of the Python that the
interpreter supports.

A script may write `await` or omit it. The syntax tree decides, per call, which calls run in parallel; the text is
changed only within lines, so line numbers stay correct. Pure. Any failure of the parser is an error of the script.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.errors import InvalidRequest, quoted
from mcp_optimizer.scripts.names import MODULES, Toolbox
from mcp_optimizer.scripts.problems import near_names
from mcp_optimizer.scripts.syntax import bound_names, called, imported, in_order, parsed

# Rewrites a script within its lines, from ordinary Python to the Python that the interpreter supports. `del` becomes
# `pop`; a generator whose elements are taken one by one becomes an iterator, because the interpreter makes a list of
# it; a method passed to `sorted` or `map` becomes a function, because the interpreter can only call methods.


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


_LATER = {"call": "_mo_call_later", "parallel": "_mo_parallel_later", "find": "_mo_find_later"}
_NAMING = frozenset({"call", "parallel"})
_CONTAINERS = (ast.List, ast.Tuple, ast.Starred, ast.ListComp, ast.GeneratorExp, ast.IfExp, ast.Set)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SUPPLIED = {
    "json.dumps": "_mo_dumps",
    "re.sub": "_mo_sub",
    **{name: f"_mo_{name}" for name in ("sorted", "max", "min", "map", "filter")},
}
"""Functions of the worker's own code that replace less capable ones of the interpreter."""

_MODULES = frozenset({"json", "re"})
_SHOWN_NAMES = 3


class NoSuchTool(InvalidRequest):
    """A script uses a tool that its server lacks or that its caller may not call."""

    def __init__(self, message: str, server: str, tool: str) -> None:
        super().__init__(message)
        self.server = server
        self.tool = tool


@dataclass(frozen=True)
class ToolMention:
    """A place in a script that names a tool."""

    line: int
    tool: CatalogTool


@dataclass(frozen=True)
class ScriptSource:
    """A parsed script."""

    script: str
    """The script with normalized line breaks, in the interpreter's Python: the input of the check."""
    code: str
    """The text that the worker runs."""
    mentions: tuple[ToolMention, ...]
    """The tools that it names, and where. Tools whose names it computes are not known yet."""
    servers: dict[str, tuple[str, ...]]
    """The tools that it names, by server, in its own spelling."""

    @property
    def tools(self) -> tuple[CatalogTool, ...]:
        """The tools that it names, each once."""
        return tuple({mention.tool.key: mention.tool for mention in self.mentions}.values())


def read_source(script: str, toolbox: Toolbox, longest: int, variables: Collection[str] = ()) -> ScriptSource:
    """Raises InvalidRequest, with the line, for a script that cannot run. `variables` are passed to the script."""
    if len(script) > longest:
        raise InvalidRequest(f"The script has {len(script):,} characters; at most {longest:,} are run.")
    script = _tidied(script)
    try:
        tree = parsed(script)
    except InvalidRequest as error:
        raise InvalidRequest(f"{error} Nothing was called.") from None
    if (plain := plainer(script, tree)) != script:
        script, tree = plain, parsed(plain)
    found = _Script(script, tree, toolbox, frozenset(variables))
    return ScriptSource(script, found.code(), tuple(found.mentions), found.servers())


def _tidied(script: str) -> str:
    """The script without Windows line breaks, common indentation and code fence; the number of lines stays the same."""
    script = script.replace("\r\n", "\n").replace("\r", "\n")
    lines = script.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if len(filled) > 1 and lines[filled[0]].startswith("```") and lines[filled[-1]].strip() == "```":
        lines[filled[0]] = lines[filled[-1]] = ""
        script = "\n".join(lines)
    return textwrap.dedent(script) if script[:1] in " \t\n" else script


class _Script:
    """One syntax tree, and the changes to its text."""

    def __init__(self, script: str, tree: ast.Module, toolbox: Toolbox, variables: frozenset[str]) -> None:
        self._tree = tree
        self._toolbox = toolbox
        self._text = ChangedText(script)
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._nodes = list(in_order(tree))
        self._bound = variables | set(bound_names(self._nodes))
        self._awaited = self._awaited_names()
        self.mentions: list[ToolMention] = []
        self._used: dict[str, dict[str, None]] = {}

    def code(self) -> str:
        """The text that the worker runs."""
        self._show_last()
        for node in self._nodes:
            self._refuse_misused_server(node)
        for node in self._nodes:
            if isinstance(node, ast.Attribute):
                self._read_attribute(node)
            elif isinstance(node, ast.Call):
                self._read_call(node)
            elif isinstance(node, ast.Await):
                self._settle(node)
        return self._text.changed()

    def servers(self) -> dict[str, tuple[str, ...]]:
        return {server: tuple(tools) for server, tools in self._used.items()}

    def _show_last(self) -> None:
        """Shows the script's value: its last expression, or what it returns outside any function."""
        last = self._tree.body[-1] if self._tree.body else None
        if isinstance(last, ast.Return) and last.value is not None:
            self._text.replace(last, "return ", "") or self._text.replace(last, "return", "")
        elif not isinstance(last, ast.Expr):
            return
        assert last.value is not None
        self._text.wrap(last.value, "_mo_shown((", "), _mo_limit)")

    def _refuse_misused_server(self, node: ast.AST) -> None:
        """Refuses servers that are imported, or used in ways that only work for other objects."""
        match node:
            case ast.Import(names=[ast.alias(name=server)]) | ast.ImportFrom(module=str(server)):
                said = f"{server!r} is a server, and is there without an import"
            case ast.Subscript(value=ast.Name(id=server)) if server not in self._bound:
                said = f"{server!r} is a server, and has no [...]"
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=server), *_]) if server not in self._bound:
                said = f"getattr() does not work with {server!r}, which is a server"
            case _:
                return
        if server in self._toolbox.servers:
            line = getattr(node, "lineno", 1)
            raise InvalidRequest(
                f"line {line}: {said}. Write {server}.tool(name=...) or call('tool', name=...). Nothing was called."
            )

    def _read_attribute(self, node: ast.Attribute) -> None:
        """`server.tool`, called or not."""
        if not isinstance(node.value, ast.Name) or (server := node.value.id) not in self._toolbox.servers:
            return
        tool = self._toolbox.tool(server, node.attr)
        if server in self._bound:
            if tool is not None:
                raise InvalidRequest(
                    f"line {node.lineno}: {server!r} is a server, and the script also uses it as a variable. Give the "
                    "variable another name. Nothing was called."
                )
            return
        if tool is None:
            raise NoSuchTool(
                f"line {node.lineno}: {server} has no tool {quoted(node.attr)}.{self._nearest(server, node.attr)} "
                "Nothing was called.",
                server,
                node.attr,
            )
        self.mentions.append(ToolMention(node.lineno, tool))
        self._used.setdefault(server, {})[node.attr] = None
        parent = self._parents[node]
        if isinstance(parent, ast.Call) and parent.func is node:
            self._side_by_side(parent, f'_mo_later("{server}.{node.attr}")', f"{server}.{node.attr}")
        elif isinstance(parent, ast.Call) and called(parent) in _NAMING and parent.args[:1] == [node]:
            self._text.replace(node, f"{server}.{node.attr}", f'"{server}.{node.attr}"')

    def _nearest(self, server: str, name: str) -> str:
        near = near_names(name, self._toolbox.servers[server], _SHOWN_NAMES, 0.5)
        return f" Similar: {', '.join(near)}." if near else ""

    def _read_call(self, node: ast.Call) -> None:
        name = called(node)
        is_own = name.partition(".")[0] in self._bound - _MODULES
        if name in _SUPPLIED and not is_own and self._is_lacking(node, name):
            self._text.replace(node.func, name, _SUPPLIED[name])
        if name in ("gather", "asyncio.gather") and "gather" not in self._bound - imported(self._nodes, "asyncio"):
            self._text.replace(node.func, name, "_mo_gather")
        if name not in _LATER or name in self._bound:
            return
        self._side_by_side(node, _LATER[name], name)
        first = node.args[0] if node.args else None
        if name in _NAMING and isinstance(first, ast.Constant) and isinstance(first.value, str):
            tool = self._toolbox.named(first.value)
            if tool is not None:
                self.mentions.append(ToolMention(node.lineno, tool))

    def _is_lacking(self, node: ast.Call, name: str) -> bool:
        """Whether the interpreter's own function lacks a feature that this call needs."""
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        if name == "json.dumps":
            return "default" in named
        if name == "re.sub":
            return not isinstance(named.get("repl", node.args[1] if len(node.args) > 1 else None), ast.Constant)
        # The interpreter's functions cannot call tools from a callback.
        function = named.get("key") if name not in ("map", "filter") else next(iter(node.args), None)
        return isinstance(function, ast.Name | ast.Attribute) or any(map(self._is_of_tools, _inside(function)))

    def _is_of_tools(self, node: ast.AST) -> bool:
        """Whether a node calls a tool, or a function of the script that may do so."""
        if not isinstance(node, ast.Call):
            return False
        name = called(node)
        return name in _LATER or name in self._bound or name.partition(".")[0] in self._toolbox.servers

    def _side_by_side(self, node: ast.Call, later: str, plain: str) -> None:
        """Where other calls may run meanwhile, the call returns at once and its result is awaited."""
        around = self._function(node)
        is_awaited = isinstance(self._parents[node], ast.Await)
        if isinstance(around, ast.AsyncFunctionDef):
            waits = not is_awaited and not self._is_gathered(node)
            if self._text.replace(node.func, plain, later) and waits:
                self._text.wrap(node, "(await ", ")")
        elif self._is_gathered(node):
            self._text.replace(node.func, plain, later)

    def _settle(self, node: ast.Await) -> None:
        """Accepts a plain result after `await`, because the call may have returned it already."""
        if not self._text.has(node, "await"):
            raise InvalidRequest(f"line {node.lineno}: put the await before the f-string. Nothing was called.")
        self._text.wrap(node.value, "_mo_settled(", ")")

    def _function(self, node: ast.AST) -> ast.AST | None:
        while (node := self._parents.get(node, self._tree)) is not self._tree:
            if isinstance(node, _FUNCTIONS):
                return node
        return None

    def _is_gathered(self, node: ast.AST) -> bool:
        """Whether the value goes unchanged to `gather` or into a variable that is awaited."""
        child, parent = node, self._parents[node]
        while isinstance(parent, _CONTAINERS):
            child, parent = parent, self._parents[parent]
        if isinstance(parent, ast.Call):
            into = parent.func
            is_appended = isinstance(into, ast.Attribute) and into.attr == "append" and self._is_awaited(into.value)
            return is_appended or called(parent).endswith("gather")
        if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr) and parent.value is child:
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            return all(isinstance(target, ast.Name) and self._is_awaited(target) for target in targets)
        return False

    def _is_awaited(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._awaited

    def _awaited_names(self) -> frozenset[str]:
        """Variables that are awaited or passed to `gather`."""
        roots = [node for node in self._nodes if isinstance(node, ast.Await)]
        gathers = [node for node in self._nodes if isinstance(node, ast.Call) and called(node).endswith("gather")]
        found = [node.value for node in roots if isinstance(node.value, ast.Name)]
        for gather in gathers:
            given = [one.value if isinstance(one, ast.Starred) else one for one in gather.args]
            found += [one for one in given if isinstance(one, ast.Name)]
        return frozenset(name.id for name in found)


def _inside(node: ast.AST | None) -> Iterator[ast.AST]:
    return iter(()) if node is None else ast.walk(node)
