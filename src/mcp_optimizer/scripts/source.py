"""Reads a script: which tools it names, and the text that its worker runs.

A script may write `await` or leave it out. Which calls run side by side is decided here, per call, from the syntax
tree; the text is changed only within lines, so that line numbers stay. Pure. Whatever a script's text does to the
parser is an error of the script.
"""

from __future__ import annotations

import ast
import difflib
import textwrap
import warnings
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.errors import InvalidRequest, quoted
from mcp_optimizer.scripts.changed_text import ChangedText
from mcp_optimizer.scripts.names import Toolbox

_LATER = {"call": "_mo_call_later", "parallel": "_mo_parallel_later", "find": "_mo_find_later"}
_NAMING = frozenset({"call", "parallel"})
_CONTAINERS = (ast.List, ast.Tuple, ast.Starred, ast.ListComp, ast.GeneratorExp, ast.IfExp, ast.Set)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DEEPEST = 100
"""Levels of nesting that a script may have: more is nothing a model writes."""

_SHOWN_NAMES = 3


class NoSuchTool(InvalidRequest):
    """A script uses a tool that its server does not have, or that its caller may not call."""

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
    """A script as it was read."""

    script: str
    """As it was given, with tidied line breaks."""
    code: str
    """What the worker runs."""
    mentions: tuple[ToolMention, ...]
    """The tools that it names, where it names them; those that it computes the names of are not known yet."""
    servers: dict[str, tuple[str, ...]]
    """The tools that it names, by server, as it spells them."""

    @property
    def tools(self) -> tuple[CatalogTool, ...]:
        """The tools that it names, each once."""
        return tuple({mention.tool.key: mention.tool for mention in self.mentions}.values())


def read_source(script: str, toolbox: Toolbox, longest: int, variables: Collection[str] = ()) -> ScriptSource:
    """Raises InvalidRequest, with the line, for a script that cannot be run. `variables` are those it is given."""
    if len(script) > longest:
        raise InvalidRequest(f"The script has {len(script):,} characters; at most {longest:,} are run.")
    script = _tidied(script)
    tree = _parsed(script)
    found = _Script(script, tree, toolbox, frozenset(variables))
    return ScriptSource(script, found.code(), tuple(found.mentions), found.servers())


def _tidied(script: str) -> str:
    """Without Windows' line breaks, common indentation and the fence of a code block; with the same lines."""
    script = script.replace("\r\n", "\n").replace("\r", "\n")
    lines = script.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if len(filled) > 1 and lines[filled[0]].startswith("```") and lines[filled[-1]].strip() == "```":
        lines[filled[0]] = lines[filled[-1]] = ""
        script = "\n".join(lines)
    return textwrap.dedent(script) if script[:1] in " \t\n" else script


def _parsed(script: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(script)
    except SyntaxError as error:
        raise InvalidRequest(f"line {error.lineno or 1}: {error.msg}. Nothing was called.") from None
    except (ValueError, RecursionError, MemoryError):
        raise InvalidRequest("The script cannot be read: it is nested too deeply, or is no text.") from None
    _refuse_depth(tree)
    return tree


def _refuse_depth(tree: ast.Module) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise InvalidRequest(f"line {getattr(level[0], 'lineno', 1)}: the script is nested too deeply.")


class _Script:
    """One syntax tree, and the changes to its text."""

    def __init__(self, script: str, tree: ast.Module, toolbox: Toolbox, variables: frozenset[str]) -> None:
        self._tree = tree
        self._toolbox = toolbox
        self._text = ChangedText(script)
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._nodes = list(_in_order(tree))
        self._bound = variables | set(bound_names(self._nodes))
        self._awaited = self._awaited_names()
        self.mentions: list[ToolMention] = []
        self._used: dict[str, dict[str, None]] = {}

    def code(self) -> str:
        """The text that the worker runs."""
        self._show_last()
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
        """The last expression is the script's value; so is what it returns outside any function."""
        last = self._tree.body[-1] if self._tree.body else None
        if isinstance(last, ast.Return) and last.value is not None:
            self._text.replace(last, "return", "")
        elif not isinstance(last, ast.Expr):
            return
        assert last.value is not None
        self._text.wrap(last.value, "_mo_shown((", "), _mo_limit)")

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
        elif isinstance(parent, ast.Call) and _called(parent) in _NAMING and parent.args[:1] == [node]:
            self._text.replace(node, f"{server}.{node.attr}", f'"{server}.{node.attr}"')

    def _nearest(self, server: str, name: str) -> str:
        near = difflib.get_close_matches(name[:100], self._toolbox.servers[server], n=_SHOWN_NAMES, cutoff=0.5)
        return f" Similar: {', '.join(near)}." if near else ""

    def _read_call(self, node: ast.Call) -> None:
        name = _called(node)
        if name in ("gather", "asyncio.gather") and "gather" not in self._bound - _imported(self._nodes):
            self._text.replace(node.func, name, "_mo_gather")
        if name not in _LATER or name in self._bound:
            return
        self._side_by_side(node, _LATER[name], name)
        first = node.args[0] if node.args else None
        if name in _NAMING and isinstance(first, ast.Constant) and isinstance(first.value, str):
            tool = self._toolbox.named(first.value)
            if tool is not None:
                self.mentions.append(ToolMention(node.lineno, tool))

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
        """What is awaited may be a result already."""
        if not self._text.has(node, "await"):
            raise InvalidRequest(f"line {node.lineno}: put the await before the f-string. Nothing was called.")
        self._text.wrap(node.value, "_mo_settled(", ")")

    def _function(self, node: ast.AST) -> ast.AST | None:
        while (node := self._parents.get(node, self._tree)) is not self._tree:
            if isinstance(node, _FUNCTIONS):
                return node
        return None

    def _is_gathered(self, node: ast.AST) -> bool:
        """Whether the value goes, as it is, to `gather` or into a variable that is awaited."""
        child, parent = node, self._parents[node]
        while isinstance(parent, _CONTAINERS):
            child, parent = parent, self._parents[parent]
        if isinstance(parent, ast.Call):
            into = parent.func
            is_appended = isinstance(into, ast.Attribute) and into.attr == "append" and self._is_awaited(into.value)
            return is_appended or _called(parent).endswith("gather")
        if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr) and parent.value is child:
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            return all(isinstance(target, ast.Name) and self._is_awaited(target) for target in targets)
        return False

    def _is_awaited(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._awaited

    def _awaited_names(self) -> frozenset[str]:
        """Variables that are awaited, or given to `gather`."""
        roots = [node for node in self._nodes if isinstance(node, ast.Await)]
        gathers = [node for node in self._nodes if isinstance(node, ast.Call) and _called(node).endswith("gather")]
        found = [node.value for node in roots if isinstance(node.value, ast.Name)]
        for gather in gathers:
            given = [one.value if isinstance(one, ast.Starred) else one for one in gather.args]
            found += [one for one in given if isinstance(one, ast.Name)]
        return frozenset(name.id for name in found)


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node, a parent before its children. Not recursive: the depth is the script's."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(list(ast.iter_child_nodes(node)))


def _called(node: ast.Call) -> str:
    """The plain name of what is called: `call`, `asyncio.gather`; otherwise nothing."""
    into = node.func
    if isinstance(into, ast.Name):
        return into.id
    if isinstance(into, ast.Attribute) and isinstance(into.value, ast.Name):
        return f"{into.value.id}.{into.attr}"
    return ""


def _imported(nodes: list[ast.AST]) -> frozenset[str]:
    """Names that are imported from asyncio."""
    return frozenset(
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio"
        for alias in node.names
    )


def bound_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Every name that the script gives a meaning of its own, anywhere."""
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
