"""Checks a script before it makes any call: its names, the arguments of its calls, and its use of results.

Called by the runner, when a stored script is saved, and when a tool that it uses has changed. Anything uncertain
passes, and a check that cannot be made reports no problem.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.compression.shapes import Shape
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.scripts.call_sites import CallSites
from mcp_optimizer.scripts.interpreter import (
    BUILTINS,
    IMPORTED,
    NO_ENVIRONMENT,
    NO_FILES,
    attribute_problems,
    cannot_import,
    missing_syntax,
    undefined_names,
    unknown_members,
    unset_in_functions,
)
from mcp_optimizer.scripts.names import HELPERS, MODULES, Toolbox
from mcp_optimizer.scripts.problems import CheckResult, Problem, problem
from mcp_optimizer.scripts.rehearsal.rehearsal import rehearsed
from mcp_optimizer.scripts.syntax import parsed_quietly

_MOST_PROBLEMS = 10


class ScriptChecker:
    """Checks scripts. `learned` returns the result shape that a principal has seen from a tool."""

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        learned: Callable[[CatalogTool, str], Shape | None] = lambda _tool, _principal: None,
    ) -> None:
        self._limits = limits
        self._learned = learned
        self._reading = asyncio.Lock()

    async def check(
        self, script: str, toolbox: Toolbox, variables: Collection[str] = (), principal: str = LOCAL_PRINCIPAL.id
    ) -> CheckResult:
        """The problems in a principal's script, by line. Every problem that is not a warning would end the script.
        `variables` are those passed to it.
        """
        if len(script) > self._limits.script_characters:
            return CheckResult()
        # One check at a time: several computing threads would slow down the event loop, and with it every request.
        async with self._reading:
            return CheckResult(_sorted(await asyncio.to_thread(self._problems, script, toolbox, variables, principal)))

    def _problems(self, script: str, toolbox: Toolbox, variables: Collection[str], principal: str) -> list[Problem]:
        try:
            tree = parsed_quietly(script)
            sites = CallSites(tree, toolbox, variables)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # Running the script reports this error better.
            return []
        found = [*sites.problems, *_of_text(tree, sites, toolbox)]
        certain = rehearsed(tree, sites, toolbox) or []
        # The first reason found for a line is the clearest.
        told = {problem.line for problem in found}
        found += [problem for problem in certain if problem.line not in told]
        return [*found, *self._doubts(tree, sites, toolbox, principal, found)]

    def _doubts(
        self, tree: ast.Module, sites: CallSites, toolbox: Toolbox, principal: str, found: Iterable[Problem]
    ) -> Iterator[Problem]:
        """Uses that would fail if every result had the same keys as earlier results."""
        learned = ((tool.key, self._learned(tool, principal)) for tool in _tools(sites.used, toolbox))
        seen = {key: shape for key, shape in learned if shape is not None}
        told = {problem.line for problem in found}
        for one in (rehearsed(tree, sites, toolbox, seen) or []) if seen else []:
            if one.line not in told:
                yield problem(one.line, one.message, is_warning=True)


def _tools(used: Iterable[tuple[str, str]], toolbox: Toolbox) -> list[CatalogTool]:
    return [tool for server, name in used if (tool := toolbox.tool(server, name)) is not None]


def _of_text(tree: ast.Module, sites: CallSites, toolbox: Toolbox) -> list[Problem]:
    """Uses of features that scripts lack, as far as the text alone shows them. Code inside `try` is not a mistake."""
    tried, bound = _tried(tree), sites.bound
    known = BUILTINS | IMPORTED | MODULES | HELPERS | bound
    unknown = attribute_problems(
        sites.nodes, lambda node: id(node) in tried or sites.is_server(node.value) or _is_undefined(node.value, known)
    )
    said = [
        *missing_syntax(sites.nodes),
        *undefined_names(sites.nodes, bound, toolbox),
        *unknown_members(sites.nodes, tried),
        *unset_in_functions(sites.nodes),
        *unknown,
    ]
    found = [problem(line, message) for line, message in said]
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases, lineno=line):
                imported = [alias.name for alias in aliases]
            case ast.ImportFrom(module=module, lineno=line):
                imported = [module or "."]
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


def _is_undefined(node: ast.expr, known: Collection[str]) -> bool:
    """Whether a node is an undefined name, which is reported itself instead of its attributes."""
    return isinstance(node, ast.Name) and node.id not in known


def _tried(tree: ast.Module) -> frozenset[int]:
    """The ids of all nodes inside `try` bodies."""
    bodies = [part for node in ast.walk(tree) if isinstance(node, ast.Try) for part in node.body]
    return frozenset(id(inner) for part in bodies for inner in ast.walk(part))


def _sorted(found: Iterable[Problem]) -> tuple[Problem, ...]:
    """By line, without repeated messages; errors before warnings."""
    once: dict[tuple[int, str], Problem] = {}
    for one in found:
        once.setdefault((one.line, one.message.partition(" Did you mean")[0]), one)
    ordered = sorted(once.values(), key=lambda one: (one.is_warning, one.line))
    return tuple(ordered[:_MOST_PROBLEMS])
