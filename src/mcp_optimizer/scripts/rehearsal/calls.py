"""Binds the names of a script during its rehearsal and calls the script's functions with their arguments.

`builtin_calls` answers calls of Python's own functions. Base class for `statements`.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from mcp_optimizer.scripts.names import MODULES
from mcp_optimizer.scripts.problems import hint, shown
from mcp_optimizer.scripts.rehearsal.builtin_calls import (
    ADDING,
    GivenArguments,
    awaited,
    dates_of,
    function,
    method,
    of_module,
    unknown_names,
)
from mcp_optimizer.scripts.rehearsal.lookups import (
    CertainFailure,
    Outcome,
    ResultChanges,
    attribute_of,
    each,
    elements,
    hashed,
    unpacked,
)
from mcp_optimizer.scripts.rehearsal.scopes import Env, Frame, Scopes, may_be_null, tested_keys
from mcp_optimizer.scripts.rehearsal.values import (
    COUNTERS,
    DATES,
    DAYS,
    DEFAULTS,
    DURATION,
    DURATIONS,
    INT,
    NOTHING,
    NUMBER,
    NUMBERS,
    STR,
    UNKNOWN,
    Anything,
    Atom,
    CollectionSite,
    Coroutine,
    Function,
    OwnCollection,
    Result,
    Tuple,
    Value,
    called,
    constant,
    join,
    kinds,
    loosen,
    named,
)


class TooManySteps(Exception):
    """The script takes more steps than the rehearsal allows."""


class Bindings(ABC):
    """The names of one script, and the lists and dicts that it makes."""

    def __init__(
        self, tree: ast.Module, steps: int, changes: ResultChanges, bound: frozenset[str], late: Iterable[str]
    ) -> None:
        self._scopes = Scopes(tree)
        self._frames = [Frame(None)]
        self._sites: dict[tuple[ast.AST, str], CollectionSite] = {}
        self._steps = steps
        self._bound = bound
        self._late = frozenset(late)
        self._ways = self._first = 0
        self.changes = changes
        self._tested = tested_keys(tree)
        self._needed_of: set[ast.expr] = set()
        """The element expressions of comprehensions that are passed to a function which fails on null."""

    @contextmanager
    def _perhaps(self, is_doubtful: bool = True) -> Iterator[None]:
        """For code that may not be reached."""
        self._ways += is_doubtful
        try:
            yield
        finally:
            self._ways -= is_doubtful

    def _unbound(self, node: ast.Name) -> Value:
        """A name read before it has a value. In a loop's first round, this is certain only outside conditions."""
        if node.id in self._late and not (self._first and self._ways):
            self._note(node, f"{node.id!r} is read before it is given a value.", is_certain=True)
        return UNKNOWN

    @property
    def _env(self) -> Env:
        return self._frames[-1].env

    @abstractmethod
    def _note(self, node: ast.AST, message: str, *, is_certain: bool = False) -> None:
        """Records a certain failure. `is_certain`: certain even in a loop's first round."""

    @abstractmethod
    def value(self, node: ast.expr | None) -> Value:
        """The value of an expression."""

    def _told(self, node: ast.AST, found: Outcome) -> Value:
        if isinstance(found, CertainFailure):
            self._note(node, found.message)
            return NOTHING
        return found

    def _needed(self, node: ast.expr | None) -> None:
        """Checks a value that is used in a way that fails on null."""
        match node:
            case ast.Subscript(value=of, slice=ast.Constant(value=str(key))) if (
                key not in self._tested and key not in self.changes.keys and not self.changes.is_free
            ):
                if tool := may_be_null(self.value(of), key):
                    self._note(
                        node, f"{tool} may return null under {shown(key)}: test it first, or write (... or ...)."
                    )
            case ast.GeneratorExp(elt=inner) | ast.ListComp(elt=inner):
                # The names in it are bound only inside the comprehension.
                self._needed_of.add(inner)

    def _made(self, node: ast.AST, of: str, item: Value = frozenset(), part: str = "") -> Value:
        """The collection made at one place in the script. `part` tells several collections of one place apart."""
        site = self._sites.setdefault((node, part or of), CollectionSite(of))
        site.add(item)
        return frozenset({OwnCollection(site)})

    def _put(self, site: CollectionSite, key: ast.expr, value: Value, line: int = 0) -> None:
        of = self.value(key)
        if wrong := hashed(of):
            self._told(key, wrong)
        site.put(of, value, line)

    def _elements(self, node: ast.AST, value: Value) -> Value:
        return self._told(node, each(value, lambda atom: elements(atom, self.changes)))

    def bind(self, target: ast.expr, value: Value, over: Value = frozenset()) -> None:
        """`target = value`; `over`: the iterable of a loop."""
        match target:
            case ast.Name(id=name):
                self._env[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                self._unpack(target, parts, value, over)
            case ast.Subscript(value=of, slice=key):
                self._store(target, self.value(of), key, value)
            case ast.Attribute(value=of):
                loosen(self.value(of))
                loosen(value)
            case ast.Starred(value=inner):
                self.bind(inner, self._made(target, "list", UNKNOWN))
                loosen(value)

    def _unpack(self, target: ast.expr, parts: Sequence[ast.expr], value: Value, over: Value) -> None:
        if any(isinstance(part, ast.Starred) for part in parts):
            inner = self._elements(target, value)
            for part in parts:
                self.bind(part.value if isinstance(part, ast.Starred) else part, UNKNOWN)
            loosen(inner)
            return
        only = next(iter(over)) if len(over) == 1 else None
        found = unpacked(value, len(parts), only, self.changes)
        if isinstance(found, CertainFailure):
            self._note(target, found.message)
            found = [UNKNOWN] * len(parts)
        for part, one in zip(parts, found, strict=True):
            self.bind(part, one)

    def _store(self, target: ast.Subscript, of: Value, key: ast.expr, value: Value) -> None:
        found = kinds(of)
        if found and found <= {"str", "tuple", "set", "None", "function", "tool", "coroutine"} | NUMBERS:
            self._note(target, f"{called(next(iter(of)))} has no elements that can be set.")
        is_slice = isinstance(key, ast.Slice)
        for atom in of:
            if isinstance(atom, OwnCollection) and atom.site.kind in ("dict", "Counter") and not is_slice:
                self._put(atom.site, key, value, target.lineno)
            elif isinstance(atom, OwnCollection):
                atom.site.add(UNKNOWN if is_slice else value)
            elif isinstance(atom, Result) and not isinstance(key, ast.Constant):
                self.changes = ResultChanges(self.changes.keys, True)
            elif isinstance(atom, Anything):
                loosen(value)


_DEEPEST_CALL = 5
_MAKING_DATES = frozenset({"now", "today", "fromisoformat", "strptime", "combine"})
_HARMLESS = frozenset({"loads", "dumps"})
_NEEDING = frozenset({"sum", "len", "abs", "round", "int", "float", "sorted", "list", "set", "enumerate"})


class Calls(Bindings):
    """The calls of one script."""

    @abstractmethod
    def _tool_call(self, node: ast.Call) -> Value | None:
        """The result of a tool call; None if the call is not of a tool."""

    @abstractmethod
    def _tool(self, node: ast.expr) -> str:
        """The spelling of a tool that is named but not called."""

    @abstractmethod
    def _body_of(self, scope: ast.FunctionDef | ast.AsyncFunctionDef) -> Value:
        """The value that a function's statements return."""

    def call(self, node: ast.Call) -> Value:
        """The result of a call."""
        if (found := self._tool_call(node)) is not None:
            return found
        match node.func:
            case ast.Name(id=name) if name not in self._bound:
                return self._builtin(node, name)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if self._is_module(module):
                if (module, name) in (("asyncio", "run"), ("asyncio", "gather")):
                    return self._gathered(node, name)
                given = self._given(node)
                for value in (*given.args, *given.named.values()):
                    loosen(frozenset() if name in _HARMLESS else value)
                return self._told(node, of_module(module, name, given))
            case ast.Attribute(value=of, attr=name) if not self._tool(node.func):
                to = self._class(of)
                return self._date(node, name, to) if to in (DATES, DAYS) else self._method(node, node.func)
        to = self._class(node.func)
        if to == DEFAULTS:
            return self._defaulted(node)
        if to == COUNTERS:
            return self._counted(node)
        if to in (DATES, DAYS, DURATIONS):
            for message in unknown_names("timedelta" if to == DURATIONS else "", self._given(node).named):
                self._note(node, message)
            return DURATION if to == DURATIONS else dates_of(to)
        return self.apply(to, *self._arguments(node), node=node)

    def _class(self, node: ast.expr) -> Value:
        """The value of an expression, which may also be a class of a module."""
        match node:
            case ast.Attribute(value=ast.Name(id="datetime"), attr="datetime" | "date" as of) if self._is_module(
                "datetime"
            ):
                return DATES if of == "datetime" else DAYS
            case ast.Attribute(value=ast.Name(id="datetime"), attr="timedelta") if self._is_module("datetime"):
                return DURATIONS
            case ast.Attribute(value=ast.Name(id=module)) if self._is_module(module):
                return UNKNOWN
        return self.value(node)

    def _date(self, node: ast.Call, name: str, to: Value) -> Value:
        given = self._given(node)
        found = kinds(given.args[0]) if given.args else frozenset()
        if name in ("fromisoformat", "strptime") and found and "str" not in found:
            self._note(node, f"{name}() takes a text, not {named(given.args[0])}.")
        return dates_of(to) if name in _MAKING_DATES else UNKNOWN

    def _counted(self, node: ast.Call) -> Value:
        """A call of `Counter`."""
        found, given = self._made(node, "Counter"), self._given(node)
        for number in range(len(given.args)):
            self._sites[node, "Counter"].put(self._told(node, given.items(number)), INT)
        if node.keywords:
            self._sites[node, "Counter"].put(STR, INT)
        return found

    def _defaulted(self, node: ast.Call) -> Value:
        """A call of `defaultdict`."""
        found = self._made(node, "dict")
        site = self._sites[node, "dict"]
        match node.args:
            case [ast.Name(id="list" | "set" | "dict" as of)] if of not in self._bound:
                site.give(self._made(node, of, part="default"))
            case [ast.Name(id="int" | "float" | "str" as of)] if of not in self._bound:
                site.give({"int": INT, "float": NUMBER, "str": STR}[of])
            case [ast.Lambda() as made]:
                site.give(self.apply(self.value(made), []))
            case _:
                self._arguments(node)
                site.give(UNKNOWN)
        return found

    def _builtin(self, node: ast.Call, name: str) -> Value:
        if name in _NEEDING and len(node.args) == 1:
            self._needed(node.args[0])
        given = self._given(node)
        for message in unknown_names(name, given.named):
            self._note(node, message)
        if name == "dict":
            return self._as_dict(node, given)
        return self._told(node, function(name, given))

    def _as_dict(self, node: ast.Call, given: GivenArguments) -> Value:
        """`dict(...)` of keyword arguments or of pairs."""
        found = self._made(node, "dict")
        site = self._sites[node, "dict"]
        if len(given.args) > 1 or len(given.args) + len(given.named) < len(node.args) + len(node.keywords):
            site.put(UNKNOWN, UNKNOWN)
        for name, value in given.named.items():
            site.put(constant(name), value)
        for atom in self._told(node, given.items()) if len(given.args) == 1 else ():
            if isinstance(atom, Tuple) and len(atom.parts) == 2:
                site.put(atom.parts[0], atom.parts[1])
            else:
                site.put(UNKNOWN, UNKNOWN)
        return found

    def _is_module(self, name: str) -> bool:
        return name in MODULES and self._scopes.find(name, self._frames) is None

    def _given(self, node: ast.Call) -> GivenArguments:
        args, named, is_known = self._arguments(node)
        if not is_known:
            args, named = [], {}
        return GivenArguments(
            args,
            named,
            lambda of, item: self._made(node, of, item),
            lambda to, given: self.apply(to, given),
            self.changes,
        )

    def _arguments(self, node: ast.Call) -> tuple[list[Value], dict[str, Value], bool]:
        """The positional and keyword arguments, and whether they are complete."""
        is_known = not any(isinstance(arg, ast.Starred) for arg in node.args)
        args = [self.value(arg.value if isinstance(arg, ast.Starred) else arg) for arg in node.args]
        by_name = {keyword.arg or "": self.value(keyword.value) for keyword in node.keywords}
        if not is_known or "" in by_name:
            for value in (*args, *by_name.values()):
                loosen(value)
        return args, by_name, is_known and "" not in by_name

    def _gathered(self, node: ast.Call, name: str) -> Value:
        parts = [
            self._elements(arg, self.value(arg.value)) if isinstance(arg, ast.Starred) else self.value(arg)
            for arg in node.args
        ]
        waited = [awaited(part) for part in parts]
        if name == "run":
            return waited[0] if waited else UNKNOWN
        if node.keywords:
            return UNKNOWN
        if any(isinstance(arg, ast.Starred) for arg in node.args):
            return self._made(node, "list", join(*waited))
        return frozenset({Tuple(tuple(waited))})

    def _method(self, node: ast.Call, into: ast.Attribute) -> Value:
        of, given = self.value(into.value), self._given(node)
        self._needed(into.value)
        if Anything() in of:
            for value in (*given.args, *given.named.values()):
                loosen(value)
            loosen(frozenset(atom for atom in of if isinstance(atom, OwnCollection)))
            for value in given.named.values():
                self.apply(value, [UNKNOWN])
            return UNKNOWN
        if into.attr in ADDING and any(isinstance(atom, Result) for atom in of):
            self._mixed(of, given.args)

        def use(atom: Atom) -> Outcome:
            there = attribute_of(atom, into.attr)
            return there if isinstance(there, CertainFailure) else method(atom, into.attr, given)

        return self._told(node, each(of, use))

    def _mixed(self, of: Value, args: Sequence[Value]) -> None:
        """After the script adds elements of another kind to a list in a result, nothing about results is certain."""
        inner = each(of, lambda atom: elements(atom, self.changes))
        added = join(*args[-1:])
        more = each(added, lambda atom: elements(atom, self.changes))
        fits = [one for one in (added, more) if not isinstance(one, CertainFailure)]
        if isinstance(inner, CertainFailure) or not any(one <= inner for one in fits):
            self.changes = ResultChanges(self.changes.keys, True)

    def apply(
        self,
        to: Value,
        args: Sequence[Value],
        by_name: dict[str, Value] | None = None,
        is_known: bool = True,
        node: ast.Call | None = None,
    ) -> Value:
        """The result of calling a value."""
        by_name = by_name or {}
        found = []
        for atom in to:
            if isinstance(atom, Function):
                if node is not None and len(to) == 1 and is_known:
                    self._fits(node, self._scopes.numbers[atom.number].args, atom.name or "the function")
                found.append(self._called(self._scopes.numbers[atom.number], args, by_name, is_known))
                continue
            if node is not None and kinds(to) and kinds(to) <= NUMBERS | {"str", "None", "list", "dict", "set"}:
                self._note(node, f"{called(atom)} cannot be called.")
            for value in (*args, *by_name.values()):
                loosen(value)
                for inner in value:
                    if isinstance(inner, Function):
                        self.apply(frozenset({inner}), [], is_known=False)
            found.append(UNKNOWN)
        return join(*found)

    def _fits(self, node: ast.Call, taken: ast.arguments, name: str) -> None:
        """Checks that a function of the script accepts the arguments of a call."""
        by_position = [one.arg for one in (*taken.posonlyargs, *taken.args)]
        by_name = [one.arg for one in (*taken.args, *taken.kwonlyargs)]
        given = [keyword.arg or "" for keyword in node.keywords]
        if len(node.args) > len(by_position) and not taken.vararg:
            self._note(node, f"{name}() takes {len(by_position)} arguments, not {len(node.args)}.")
        for one in given:
            if one not in by_name and not taken.kwarg:
                self._note(node, f"{name}() has no argument {shown(one)}.{hint(one, by_name, 'arguments')}")
        needed = by_position[: len(by_position) - len(taken.defaults)][len(node.args) :]
        needed += [one.arg for one, value in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if value is None]
        for one in needed:
            if one not in given:
                self._note(node, f"{name}() needs the argument {shown(one)}.")

    def _called(
        self,
        scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        args: Sequence[Value],
        by_name: dict[str, Value],
        is_known: bool,
    ) -> Value:
        is_deep = len(self._frames) > _DEEPEST_CALL or sum(one.scope is scope for one in self._frames) > 1
        if is_deep:
            for value in (*args, *by_name.values()):
                loosen(value)
            return UNKNOWN
        frame = Frame(scope, self._bound_arguments(scope.args, args, by_name, is_known))
        self._frames.append(frame)
        try:
            found = self.value(scope.body) if isinstance(scope, ast.Lambda) else self._body_of(scope)
        finally:
            self._frames.pop()
        if isinstance(scope, ast.AsyncFunctionDef):
            return frozenset({Coroutine(found, scope.name)})
        return found

    def _bound_arguments(
        self, names: ast.arguments, args: Sequence[Value], by_name: dict[str, Value], is_known: bool
    ) -> Env:
        plain = [*names.posonlyargs, *names.args]
        env: Env = {one.arg: UNKNOWN for one in (*plain, *names.kwonlyargs)}
        defaults = {one.arg: value for one, value in zip(plain[::-1], names.defaults[::-1], strict=False)}
        defaults |= {one.arg: value for one, value in zip(names.kwonlyargs, names.kw_defaults, strict=True) if value}
        for extra in (names.vararg, names.kwarg):
            if extra is not None:
                env[extra.arg] = UNKNOWN
        if not is_known or names.vararg or names.kwarg:
            for value in (*args, *by_name.values()):
                loosen(value)
            return env
        given = {one.arg: value for one, value in zip(plain, args, strict=False)} | by_name
        for name in env:
            if name in given:
                env[name] = given[name]
            elif name in defaults:
                env[name] = self.value(defaults[name])
        return env
