"""The statements of a script, in their order: ways that part are joined, and loops are gone through twice. The base of
`rehearsal`, which knows the tools.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from mcp_optimizer.scripts.rehearsal.expressions import Expressions
from mcp_optimizer.scripts.rehearsal.scopes import Env, Scope, joined, narrow
from mcp_optimizer.scripts.rehearsal.uses import each, elements
from mcp_optimizer.scripts.rehearsal.values import (
    COUNTERS,
    DATES,
    DAYS,
    DEFAULTS,
    DURATIONS,
    NONE,
    UNKNOWN,
    Function,
    Own,
    Plain,
    Result,
    Value,
    doubted,
    join,
    kinds,
    loosen,
)
from mcp_optimizer.scripts.syntax import bound_names

_CLASSES: dict[tuple[str | None, str], Value] = {
    **{("datetime", "datetime"): DATES, ("datetime", "date"): DAYS},
    ("datetime", "timedelta"): DURATIONS,
    **{("collections", "defaultdict"): DEFAULTS, ("collections", "Counter"): COUNTERS},
}
_NAMES_A_STEP = 4
_OF_TOOLS = frozenset({"ToolError", "RuntimeError"})


class Statements(Expressions):
    """What the statements of one script do to its names."""

    _quiet = 0
    """Above 0, what fails is not told: there is another round, or the script itself expects it to fail."""

    _seen: set[Scope]
    """Functions that were called."""

    @contextmanager
    def _quietly(self, is_quiet: bool = True) -> Iterator[None]:
        self._quiet += is_quiet
        try:
            yield
        finally:
            self._quiet -= is_quiet

    def block(self, body: list[ast.stmt]) -> bool:
        """Go through statements; whether what follows them is reached."""
        for statement in body:
            read = self._DONE.get(type(statement))
            if read is not None and read(self, statement) is False:
                return False
        return True

    def _body_of(self, scope: ast.FunctionDef | ast.AsyncFunctionDef) -> Value:
        self._seen.add(scope)
        is_reached = self.block(scope.body)
        returned = self._frames[-1].returned
        return join(*returned, *([NONE] if is_reached else []))

    def _expression(self, node: ast.Expr) -> None:
        self.value(node.value)

    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.bind(target, value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.bind(node.target, self.value(node.value))

    def _augmented(self, node: ast.AugAssign) -> None:
        target = node.target
        old = self.value(_read(target))
        new = self.value(node.value)
        self._needed(node.value)
        if kinds(old) == {"list"} and isinstance(node.op, ast.Add):
            # The list itself grows, under every name that it has.
            more = self._told(node, each(new, lambda atom: elements(atom, self.changes)))
            for atom in old:
                if isinstance(atom, Own):
                    atom.site.add(more)
            if any(isinstance(atom, Result) for atom in old):
                self._mixed(old, [new])
            return
        if kinds(old) == {"dict"}:
            loosen(old)
        found = self.together(node, node.op, old, new)
        if not old and not isinstance(target, ast.Name):
            return
        if isinstance(target, ast.Name):
            self.bind(target, found)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            self._store(target, self.value(target.value), target.slice, found)

    def _return(self, node: ast.Return) -> bool:
        self._frames[-1].returned.append(self.value(node.value) if node.value is not None else NONE)
        return False

    def _raise(self, node: ast.Raise) -> bool:
        if node.exc is not None:
            self.value(node.exc)
        return False

    def _leave(self, _node: ast.Break | ast.Continue) -> bool:
        frame = self._frames[-1]
        frame.left.append(dict(frame.env))
        return False

    def _assert(self, node: ast.Assert) -> None:
        self.value(node.test)
        self._frames[-1].use(narrow(node.test, self._env))

    def _way(self, env: Env, body: list[ast.stmt]) -> tuple[bool, Env]:
        self._frames[-1].use(env)
        with self._perhaps():
            is_reached = self.block(body)
        return is_reached, self._env

    def _join(self, ways: list[tuple[bool, Env]]) -> bool:
        reached = [env for is_reached, env in ways if is_reached]
        if reached:
            self._frames[-1].use(self._joined(reached))
        return bool(reached)

    def _joined(self, envs: list[Env]) -> Env:
        """Joining many names takes as long as many steps."""
        self._steps -= sum(map(len, envs)) // _NAMES_A_STEP
        return joined(envs)

    def _if(self, node: ast.If) -> bool:
        truth = self._truth(node.test)
        if truth is not None:
            return self.block(node.body if truth else node.orelse)
        env = narrow(node.test, self._env)
        return self._join([self._way(dict(env), node.body), self._way(dict(env), node.orelse)])

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        frame = self._frames[-1]
        over = self.value(node.iter) if not isinstance(node, ast.While) else UNKNOWN
        for is_quiet in (True, False):
            before, outer = dict(self._env), frame.loop([])
            self._first += is_quiet
            if isinstance(node, ast.While):
                self.value(node.test)
                self._frames[-1].use(narrow(node.test, self._env))
            else:
                self.bind(node.target, self._elements(node.iter, over), over)
            self.block(node.body)
            self._first -= is_quiet
            self._frames[-1].use(self._joined([before, self._env, *frame.loop(outer)]))
        self.block(node.orelse)

    def _try(self, node: ast.Try) -> bool:
        before = dict(self._env)
        with self._quietly(any(map(_expects_more, node.handlers))):
            body = self.block(node.body), self._env
        middle = self._joined([before, body[1]])
        ways = [self._way(body[1], node.orelse) if body[0] else body]
        for handler in node.handlers:
            env = dict(middle)
            if handler.name:
                env[handler.name] = UNKNOWN if _expects_more(handler) else frozenset({Plain("exception")})
            ways.append(self._way(env, handler.body))
        is_reached = self._join(ways)
        return self.block(node.finalbody) and is_reached

    def _with(self, node: ast.With | ast.AsyncWith) -> bool:
        for item in node.items:
            self.value(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, UNKNOWN)
        return self.block(node.body)

    def _match(self, node: ast.Match) -> bool:
        self.value(node.subject)
        before = dict(self._env)
        if isinstance(node.subject, ast.Name) and node.subject.id in before:
            before[node.subject.id] = doubted(before[node.subject.id])
        ways = [(True, before)]
        for case in node.cases:
            env = before | dict.fromkeys(bound_names(ast.walk(case.pattern)), UNKNOWN)
            ways.append(self._way(env, case.body))
        return self._join(ways)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        known: Value = frozenset({Function(node.name, self._scopes.number(node))})
        self._env[node.name] = UNKNOWN if node.decorator_list else known

    def _unknown(self, node: ast.ClassDef | ast.Import | ast.ImportFrom) -> None:
        names = [node.name] if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [one.asname or one.name for one in node.names if isinstance(node, ast.ImportFrom) or one.asname]
        module = node.module if isinstance(node, ast.ImportFrom) else None
        for name in names:
            self._env[name] = _CLASSES.get((module, name), UNKNOWN)

    def uncalled(self) -> None:
        """Functions that nothing calls, as far as that is known: their parameters may be anything."""
        for scope in self._scopes.numbers:
            if not isinstance(scope, ast.Lambda) and scope not in self._seen:
                self._called(scope, [], {}, False)

    _DONE: ClassVar[dict[type[ast.stmt], Callable[..., bool | None]]] = {
        **{ast.Expr: _expression, ast.Assign: _assign, ast.AnnAssign: _annotated, ast.AugAssign: _augmented},
        **{ast.Return: _return, ast.Raise: _raise, ast.Break: _leave, ast.Continue: _leave, ast.Assert: _assert},
        **{ast.If: _if, ast.For: _loop, ast.AsyncFor: _loop, ast.While: _loop, ast.Try: _try, ast.Match: _match},
        **{ast.With: _with, ast.AsyncWith: _with, ast.FunctionDef: _function, ast.AsyncFunctionDef: _function},
        **{ast.ClassDef: _unknown, ast.Import: _unknown, ast.ImportFrom: _unknown},
    }


def _read(target: ast.expr) -> ast.expr:
    """A target as the expression that reads it."""
    match target:
        case ast.Name(id=name):
            return ast.copy_location(ast.Name(name, ast.Load()), target)
        case ast.Subscript(value=value, slice=key):
            return ast.copy_location(ast.Subscript(value, key, ast.Load()), target)
        case ast.Attribute(value=value, attr=name):
            return ast.copy_location(ast.Attribute(value, name, ast.Load()), target)
    return target


def _expects_more(handler: ast.ExceptHandler) -> bool:
    """Whether it catches more than the failures of tools."""
    if handler.type is None:
        return True
    return any(isinstance(node, ast.Name) and node.id not in _OF_TOOLS for node in ast.walk(handler.type))
