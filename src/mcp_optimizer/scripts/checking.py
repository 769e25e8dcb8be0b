"""Checks a script before anything is called: its names, the arguments of its calls, and what it does with results.

Called by the runner, and when a stored script is saved or a tool that it uses has changed. The type checker is the one
that comes with the scripts' interpreter; it runs in a worker, within a time, and whatever it is unsure of passes. A
check that cannot be made finds no problem.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.compression.shapes import Shape
from mcp_optimizer.domain.principal import LOCAL_PRINCIPAL
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.scripts.attributes import attribute_problems
from mcp_optimizer.scripts.call_sites import CallSites
from mcp_optimizer.scripts.check_workers import CheckVerdict, CheckWorkers
from mcp_optimizer.scripts.checked import Checked
from mcp_optimizer.scripts.diagnostics import Context, problems_of
from mcp_optimizer.scripts.names import HELPERS, MODULES, Toolbox
from mcp_optimizer.scripts.prepared import LINES_BEFORE, UNKNOWN_AT_RUN_TIME, preamble, prepared
from mcp_optimizer.scripts.problems import Problem, problem, shown
from mcp_optimizer.scripts.rehearsal.rehearsal import rehearsed
from mcp_optimizer.scripts.stubs import ExactStubs
from mcp_optimizer.scripts.syntax import parsed_quietly
from mcp_optimizer.scripts.unsupported import NO_ENVIRONMENT, NO_FILES, cannot_import, instead_of_name, told

_MOST_PROBLEMS = 10
_ADDING = frozenset({"setdefault", "pop", "update", "get"})
"""Methods after which a key is the script's own affair."""

_KNOWN = frozenset(dir(builtins)) - {"open", "input"}


@dataclass(frozen=True)
class _Prepared:
    """A script that was read, and what the type checker is to be told."""

    text: str
    stubs: str
    context: Context
    problems: tuple[Problem, ...]
    calls_something: bool


class ScriptChecker:
    """Checks scripts. `learned` says what a principal has seen in the results of a tool."""

    def __init__(
        self,
        workers: CheckWorkers,
        limits: Limits = DEFAULT_LIMITS,
        learned: Callable[[CatalogTool, str], Shape | None] = lambda _tool, _principal: None,
    ) -> None:
        self._workers = workers
        self._limits = limits
        self._learned = learned
        self._reading = asyncio.Lock()

    async def check(
        self, script: str, toolbox: Toolbox, variables: Collection[str] = (), principal: str = LOCAL_PRINCIPAL.id
    ) -> Checked:
        """What is wrong with a principal's script, by line. Those that are no warnings would end it. `variables` it is
        given.
        """
        if len(script) > self._limits.script_characters:
            return Checked()
        # One at a time: threads that compute would take turns with the event loop, and everybody would wait.
        async with self._reading:
            read = await asyncio.to_thread(self._read, script, toolbox, variables, principal)
        if read is None:
            return Checked()
        found, told = [*read.problems], {problem.line for problem in read.problems}
        # A script that calls nothing can do no harm by failing.
        if not read.calls_something:
            return Checked(_sorted(found))
        said = await self._workers.verdict(read.text, read.stubs)
        found += [problem for problem in await self._typed(said, read.context) if problem.line not in told]
        return Checked(_sorted(found), said.is_made)

    def _read(self, script: str, toolbox: Toolbox, variables: Collection[str], principal: str) -> _Prepared | None:
        try:
            tree = parsed_quietly(script)
            sites = CallSites(tree, toolbox, variables)
            text = prepared(script, tree, sites)
            # What was changed must be as good as what was given.
            parsed_quietly(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # Whoever runs the script says it better.
            return None
        exact = ExactStubs(self._limits.script_stub_characters)
        used = list(sites.used)
        learned = ((tool.key, self._learned(tool, principal)) for tool in _tools(used, toolbox))
        shapes = {key: shape for key, shape in learned if shape is not None}
        stubs = "\n".join([preamble(variables), exact.write(toolbox, used, shapes)])
        packed = {site.node.lineno for site in sites.sites if len(site.node.args) == 1}
        found = [*sites.problems, *_untyped(tree, sites)]
        told = {problem.line for problem in found}
        seen = rehearsed(tree, sites, toolbox)
        found += [problem for problem in seen or () if problem.line not in told]
        lines = script.split("\n")
        keys, is_rehearsed = _added_keys(tree), seen is not None
        context = Context(toolbox, exact.results, keys, sites.bound, lines, variables, packed, is_rehearsed)
        calls_something = bool(used or sites.sites) or not _names(tree) <= _KNOWN | sites.bound
        return _Prepared(text, stubs, context, tuple(found), calls_something)

    async def close(self) -> None:
        await self._workers.close()

    async def _typed(self, said: CheckVerdict, context: Context) -> list[Problem]:
        """What the type checker, and the interpreter's own parser, say."""
        if said.refused:
            return [problem(max(said.line - LINES_BEFORE, 1), told(said.refused))]
        return await asyncio.to_thread(problems_of, said.diagnostics, context) if said.diagnostics else []


def _names(tree: ast.Module) -> frozenset[str]:
    """Every name that the script reads."""
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def _tools(used: Iterable[tuple[str, str]], toolbox: Toolbox) -> list[CatalogTool]:
    return [tool for server, name in used if (tool := toolbox.tool(server, name)) is not None]


def _untyped(tree: ast.Module, sites: CallSites) -> list[Problem]:
    """What scripts do not have and the type checker does not miss. What is tried is no mistake."""
    tried, bound = _tried(tree), sites.bound
    unknown = attribute_problems(
        sites.nodes, lambda node: id(node) in tried or sites.is_server(node.value) or _is_undefined(node.value, bound)
    )
    found = [problem(line, message) for line, message in unknown]
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases, lineno=line):
                imported = [alias.name for alias in aliases]
            case ast.ImportFrom(module=module, lineno=line):
                imported = [module or "."]
            case ast.Name(id=name, lineno=line) if name in UNKNOWN_AT_RUN_TIME and name not in bound:
                imported = []
                found.append(problem(line, f"{shown(name)} is not defined. {instead_of_name(name)}"))
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "getenv", lineno=line):
                imported = []
                found += [problem(line, NO_ENVIRONMENT)] if id(node) not in tried else []
            case ast.Call(func=ast.Name(id="open"), lineno=line) if "open" not in bound:
                imported = []
                found += [problem(line, NO_FILES)] if id(node) not in tried else []
            case _:
                continue
        missing = [name for name in imported if name.partition(".")[0] not in {*MODULES, "__future__"}]
        found += [problem(line, cannot_import(name)) for name in missing if id(node) not in tried]
    return found


def _is_undefined(node: ast.expr, bound: Collection[str]) -> bool:
    """Whether it is a name that nothing has, which the type checker tells better than its attributes do."""
    return isinstance(node, ast.Name) and not any(node.id in names for names in (bound, _KNOWN, MODULES, HELPERS))


def _tried(tree: ast.Module) -> frozenset[int]:
    """The ids of all nodes in the bodies of `try`."""
    bodies = [part for node in ast.walk(tree) if isinstance(node, ast.Try) for part in node.body]
    return frozenset(id(inner) for part in bodies for inner in ast.walk(part))


def _added_keys(tree: ast.Module) -> frozenset[str]:
    """Keys that the script puts into objects, or asks for where they may be missing."""
    found: set[object] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=ast.Constant(value=key), ctx=ast.Store() | ast.Del()):
                found.add(key)
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=key), *_]) if name in _ADDING:
                found.add(key)
            case ast.Call(func=ast.Attribute(attr="update"), keywords=keywords):
                found |= {keyword.arg for keyword in keywords}
            case ast.Call(func=ast.Attribute(attr="update"), args=[ast.Dict(keys=keys)]):
                found |= {key.value for key in keys if isinstance(key, ast.Constant)}
            case ast.Compare(left=ast.Constant(value=key), ops=[ast.In() | ast.NotIn()]):
                found.add(key)
            case ast.Try(body=body, handlers=handlers) if any(map(_expects_missing, handlers)):
                found |= {inner.value for one in body for inner in ast.walk(one) if isinstance(inner, ast.Constant)}
    return frozenset(key for key in found if isinstance(key, str))


def _expects_missing(handler: ast.ExceptHandler) -> bool:
    """Whether a key that is missing is no surprise."""
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else set()
    return handler.type is None or not names.isdisjoint({"KeyError", "LookupError", "Exception", "BaseException"})


def _sorted(found: Iterable[Problem]) -> tuple[Problem, ...]:
    """By line, each line's first words once; errors before warnings."""
    once: dict[tuple[int, str], Problem] = {}
    for one in found:
        once.setdefault((one.line, one.message.partition(" Did you mean")[0]), one)
    ordered = sorted(once.values(), key=lambda one: (one.is_warning, one.line))
    return tuple(ordered[:_MOST_PROBLEMS])
