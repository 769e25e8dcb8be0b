"""Rehearses the expressions and statements of a script in order, with kinds in place of values.

Branches are joined afterwards, and loops run twice. Base class for `rehearsal`, which knows the tools.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from mcp_optimizer.scripts.rehearsal.builtin_calls import awaited
from mcp_optimizer.scripts.rehearsal.calls import Calls, TooManySteps
from mcp_optimizer.scripts.rehearsal.lookups import attribute_of, each, elements, hashed, item_of
from mcp_optimizer.scripts.rehearsal.operators import combined, compared, formatted, percent
from mcp_optimizer.scripts.rehearsal.scopes import Env, Scope, joined, narrow
from mcp_optimizer.scripts.rehearsal.values import (
    BOOL,
    COUNTERS,
    DATES,
    DAYS,
    DEFAULTS,
    DURATIONS,
    NONE,
    NUMBER,
    NUMBERS,
    STR,
    UNKNOWN,
    Constant,
    Function,
    NamedTool,
    OwnCollection,
    Plain,
    Result,
    Tuple,
    Value,
    called,
    constant,
    doubted,
    join,
    kind,
    kinds,
    loosen,
)
from mcp_optimizer.scripts.syntax import bound_names

_SLICE: Value = frozenset({Plain("slice")})
_WITH_METHODS = frozenset({"str", "list", "dict", "set", "tuple"})
"""Kinds that have only methods as attributes; scripts can only call those."""

_NO_END = frozenset({"str", "float", "list", "dict"})


class Expressions(Calls):
    """Evaluates the expressions of one script."""

    def value(self, node: ast.expr | None) -> Value:
        self._steps -= 1
        if self._steps < 0:
            raise TooManySteps
        if node is None:
            return UNKNOWN
        match node:
            case ast.Constant(value=value):
                return constant(value)
            case ast.Name(id=name):
                found = self._scopes.find(name, self._frames)
                return self._unbound(node) if found is None else found
            case ast.Await(value=inner):
                return awaited(self.value(inner))
            case ast.Starred(value=inner):
                return self.value(inner)
        read = self._READ.get(type(node))
        return read(self, node) if read is not None else self._rest(node)

    def _rest(self, node: ast.AST) -> Value:
        """An expression that the rehearsal does not follow; its parts are still checked, and may be changed by it."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                loosen(self.value(child))
        return UNKNOWN

    def _display(self, node: ast.List | ast.Set) -> Value:
        of = "list" if isinstance(node, ast.List) else "set"
        found = self._made(node, of)
        for part in node.elts:
            value = self.value(part)
            if isinstance(part, ast.Starred):
                value = self._elements(part, value)
            if of == "set" and (wrong := hashed(value)):
                self._told(part, wrong)
            self._made(node, of, value)
        return found

    def _tuple(self, node: ast.Tuple) -> Value:
        if any(isinstance(part, ast.Starred) for part in node.elts):
            return self._rest(node)
        return frozenset({Tuple(tuple(self.value(part) for part in node.elts))})

    def _dict(self, node: ast.Dict) -> Value:
        found = self._made(node, "dict")
        site = self._sites[node, "dict"]
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item)
            if key is not None:
                self._put(site, key, value)
                continue
            other = next(iter(value)) if len(value) == 1 else None
            if not isinstance(other, OwnCollection) or other.site.kind != "dict":
                site.put(UNKNOWN, UNKNOWN)
                continue
            self._steps -= len(other.site.keys) // 2
            for name, one in other.site.keys.items():
                site.put(constant(name), one)
            if other.site.key:
                site.put(other.site.key, other.site.item)
        return found

    def _subscript(self, node: ast.Subscript) -> Value:
        of = self.value(node.value)
        self._needed(node.value)
        if isinstance(node.slice, ast.Slice):
            for part in (node.slice.lower, node.slice.upper, node.slice.step):
                at = kinds(self.value(part)) if part is not None else frozenset()
                if at and at <= _NO_END:
                    self._note(node, "the ends of a slice are whole numbers.")
            return self._told(node, each(of, lambda atom: item_of(atom, _SLICE, self.changes)))
        key = self.value(node.slice)
        return self._told(node, each(of, lambda atom: item_of(atom, key, self.changes)))

    def _attribute(self, node: ast.Attribute) -> Value:
        if spelling := self._tool(node):
            return frozenset({NamedTool(spelling)})
        of = self.value(node.value)
        found = self._told(node, each(of, lambda atom: attribute_of(atom, node.attr)))
        if found and kinds(of) and kinds(of) <= _WITH_METHODS and not node.attr.startswith("__"):
            self._note(node, f".{node.attr} is a method: call it, or for a key write [{node.attr!r}].")
        loosen(of)
        return found

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        frame, before = self._frames[-1], self._env
        of = {ast.SetComp: "set", ast.DictComp: "dict"}.get(type(node), "list")
        found = self._made(node, of)
        self._frames[-1].use(dict(before))
        for part in node.generators:
            over = self.value(part.iter)
            self.bind(part.target, self._elements(part.iter, over), over)
            for test in part.ifs:
                self.value(test)
                self._frames[-1].use(narrow(test, frame.env))
        if isinstance(node, ast.DictComp):
            self._put(self._sites[node, of], node.key, self.value(node.value))
        else:
            item = self.value(node.elt)
            if node.elt in self._needed_of:
                self._needed(node.elt)
            if of == "set" and (wrong := hashed(item)):
                self._told(node, wrong)
            self._made(node, of, item)
        self._frames[-1].use(before)
        return found

    def _choice(self, node: ast.IfExp) -> Value:
        truth = self._truth(node.test)
        if truth is not None:
            return self.value(node.body if truth else node.orelse)
        before = self._env
        self._frames[-1].use(narrow(node.test, before))
        with self._perhaps():
            found = join(self.value(node.body), self.value(node.orelse))
        self._frames[-1].use(before)
        return found

    def _either(self, node: ast.BoolOp) -> Value:
        frame, before = self._frames[-1], self._env
        found: Value = frozenset()
        for part in node.values:
            with self._perhaps(part is not node.values[0]):
                value = self.value(part)
            is_last = part is node.values[-1]
            if isinstance(node.op, ast.Or) and not is_last:
                value = frozenset(atom for atom in value if kind(atom) != "None")
            found = join(found, value)
            self._frames[-1].use(narrow(part, frame.env))
        self._frames[-1].use(before)
        return found

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if not isinstance(node.op, ast.Mod):
            self._needed(node.left)
            self._needed(node.right)
        only = next(iter(left)) if len(left) == 1 else None
        if isinstance(node.op, ast.Mod) and isinstance(only, Constant) and isinstance(only.value, str):
            return self._told(node, percent(only.value, right) or STR)
        return self.together(node, node.op, left, right)

    def together(self, node: ast.AST, sign: ast.operator, left: Value, right: Value) -> Value:
        """`left + right`, as a new value."""
        found = self._told(node, combined(sign, left, right))
        both = kinds(left) | kinds(right)
        if both in ({"list"}, {"set"}) and kinds(left) and kinds(right):
            inner = each(join(left, right), lambda atom: elements(atom, self.changes))
            return self._made(node, next(iter(both)), self._told(node, inner))
        if "" in map(kind, left | right):
            loosen(join(left, right))
        return found

    def _comparison(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        found: Value = BOOL
        for sign, other in zip(node.ops, node.comparators, strict=True):
            right = self.value(other)
            found = self._told(node, compared(sign, left, right))
            left = right
        return found if len(node.ops) == 1 else BOOL

    def _truth(self, test: ast.expr) -> bool | None:
        """Whether a condition holds; None if that is not certain."""
        value = self.value(test)
        only = next(iter(value)) if len(value) == 1 else None
        if isinstance(only, Constant):
            return bool(only.value)
        return False if kinds(value) == {"None"} else None

    def _unary(self, node: ast.UnaryOp) -> Value:
        of = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return BOOL if (truth := self._truth(node.operand)) is None else constant(not truth)
        found = kinds(of)
        if found and found.isdisjoint(NUMBERS):
            self._note(node, f"{called(next(iter(of)))} has no sign.")
        only = next(iter(of)) if len(of) == 1 else None
        if isinstance(only, Constant) and isinstance(node.op, ast.USub) and isinstance(only.value, int | float):
            return constant(-only.value)
        return of if found and found <= {"int", "float"} and not isinstance(only, Constant) else NUMBER

    def _text(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if not isinstance(part, ast.FormattedValue):
                continue
            value = self.value(part.value)
            spec = part.format_spec.values if isinstance(part.format_spec, ast.JoinedStr) else []
            if part.conversion == -1 and len(spec) == 1 and isinstance(spec[0], ast.Constant):
                wrong = formatted(value, str(spec[0].value))
                self._told(part.value, wrong or UNKNOWN)
        return STR

    def _lambda(self, node: ast.Lambda) -> Value:
        return frozenset({Function("", self._scopes.number(node))})

    def _walrus(self, node: ast.NamedExpr) -> Value:
        found = self.value(node.value)
        self.bind(node.target, found)
        return found

    _READ: ClassVar[dict[type[ast.expr], Callable[..., Value]]] = {
        **{ast.List: _display, ast.Set: _display, ast.Tuple: _tuple},
        **{ast.Dict: _dict, ast.Subscript: _subscript, ast.Attribute: _attribute},
        **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp), _comprehension),
        **{ast.IfExp: _choice, ast.BoolOp: _either, ast.BinOp: _binary},
        **{ast.Compare: _comparison, ast.UnaryOp: _unary, ast.JoinedStr: _text},
        **{ast.Lambda: _lambda, ast.NamedExpr: _walrus, ast.Call: Calls.call},
    }


_CLASSES: dict[tuple[str | None, str], Value] = {
    **{("datetime", "datetime"): DATES, ("datetime", "date"): DAYS},
    ("datetime", "timedelta"): DURATIONS,
    **{("collections", "defaultdict"): DEFAULTS, ("collections", "Counter"): COUNTERS},
}
_NAMES_A_STEP = 4
_OF_TOOLS = frozenset({"ToolError", "RuntimeError"})


class Statements(Expressions):
    """Applies the statements of one script to its names."""

    _quiet = 0
    """Above 0, failures are not reported: another round follows, or the script itself expects a failure."""

    _seen: set[Scope]
    """Functions that have been called."""

    @contextmanager
    def _quietly(self, is_quiet: bool = True) -> Iterator[None]:
        self._quiet += is_quiet
        try:
            yield
        finally:
            self._quiet -= is_quiet

    def block(self, body: list[ast.stmt]) -> bool:
        """Runs statements; returns whether the code after them is reached."""
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
            # `+=` extends the list itself, so every name for it sees the change.
            more = self._told(node, each(new, lambda atom: elements(atom, self.changes)))
            for atom in old:
                if isinstance(atom, OwnCollection):
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
        """Joining many names counts as several steps."""
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
        """Rehearses functions without a known call, with unknown arguments."""
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
    """The expression that reads an assignment target."""
    match target:
        case ast.Name(id=name):
            return ast.copy_location(ast.Name(name, ast.Load()), target)
        case ast.Subscript(value=value, slice=key):
            return ast.copy_location(ast.Subscript(value, key, ast.Load()), target)
        case ast.Attribute(value=value, attr=name):
            return ast.copy_location(ast.Attribute(value, name, ast.Load()), target)
    return target


def _expects_more(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches more than tool failures."""
    if handler.type is None:
        return True
    return any(isinstance(node, ast.Name) and node.id not in _OF_TOOLS for node in ast.walk(handler.type))
