"""How the names of a script are bound while it is gone through. The base of `calls`."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from mcp_optimizer.scripts.problems import shown
from mcp_optimizer.scripts.rehearsal.expected import may_be_null, tested_keys
from mcp_optimizer.scripts.rehearsal.scopes import Env, Frame, Scopes
from mcp_optimizer.scripts.rehearsal.uses import (
    Outcome,
    ResultChanges,
    Wrong,
    each,
    elements,
    hashed,
    unpacked,
)
from mcp_optimizer.scripts.rehearsal.values import (
    NOTHING,
    NUMBERS,
    UNKNOWN,
    Anything,
    Origin,
    Own,
    Result,
    Value,
    kinds,
    loosen,
)
from mcp_optimizer.scripts.rehearsal.words import called


class TooManySteps(Exception):
    """A script that takes more steps than are made for it."""


class Bindings(ABC):
    """The names of one script, and the lists and dicts that it makes."""

    def __init__(
        self, tree: ast.Module, steps: int, changes: ResultChanges, bound: frozenset[str], late: Iterable[str]
    ) -> None:
        self._scopes = Scopes(tree)
        self._frames = [Frame(None)]
        self._sites: dict[tuple[ast.AST, str], Origin] = {}
        self._steps = steps
        self._bound = bound
        self._late = frozenset(late)
        self._ways = self._first = 0
        self.changes = changes
        self._tested = tested_keys(tree)
        self._needed_of: set[ast.expr] = set()
        """What comprehensions give to a function that null would break."""

    @contextmanager
    def _perhaps(self, is_doubtful: bool = True) -> Iterator[None]:
        """What is inside may not be reached."""
        self._ways += is_doubtful
        try:
            yield
        finally:
            self._ways -= is_doubtful

    def _unbound(self, node: ast.Name) -> Value:
        """A name that is given no value before it is read here. In a loop's first round, that is certain outside of
        conditions only.
        """
        if node.id in self._late and not (self._first and self._ways):
            self._note(node, f"{node.id!r} is read before it is given a value.", is_certain=True)
        return UNKNOWN

    @property
    def _env(self) -> Env:
        return self._frames[-1].env

    @abstractmethod
    def _note(self, node: ast.AST, message: str, *, is_certain: bool = False) -> None:
        """Something certainly fails. `is_certain`: in a loop's first round already."""

    @abstractmethod
    def value(self, node: ast.expr | None) -> Value:
        """What an expression comes to."""

    def _told(self, node: ast.AST, found: Outcome) -> Value:
        if isinstance(found, Wrong):
            self._note(node, found.message)
            return NOTHING
        return found

    def _needed(self, node: ast.expr | None) -> None:
        """Something is done with a value that null would break."""
        match node:
            case ast.Subscript(value=of, slice=ast.Constant(value=str(key))) if (
                key not in self._tested and key not in self.changes.keys and not self.changes.is_free
            ):
                if tool := may_be_null(self.value(of), key):
                    self._note(
                        node, f"{tool} may return null under {shown(key)}: test it first, or write (... or ...)."
                    )
            case ast.GeneratorExp(elt=inner) | ast.ListComp(elt=inner):
                # Its names are bound inside of it only.
                self._needed_of.add(inner)

    def _made(self, node: ast.AST, of: str, item: Value = frozenset(), part: str = "") -> Value:
        """What one place in the script makes. `part`: what of it, if it makes several things."""
        site = self._sites.setdefault((node, part or of), Origin(of))
        site.add(item)
        return frozenset({Own(site)})

    def _put(self, site: Origin, key: ast.expr, value: Value, line: int = 0) -> None:
        of = self.value(key)
        if wrong := hashed(of):
            self._told(key, wrong)
        site.put(of, value, line)

    def _elements(self, node: ast.AST, value: Value) -> Value:
        return self._told(node, each(value, lambda atom: elements(atom, self.changes)))

    def bind(self, target: ast.expr, value: Value, over: Value = frozenset()) -> None:
        """`target = value`; `over`: what a loop goes through."""
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
        if isinstance(found, Wrong):
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
            if isinstance(atom, Own) and atom.site.kind in ("dict", "Counter") and not is_slice:
                self._put(atom.site, key, value, target.lineno)
            elif isinstance(atom, Own):
                atom.site.add(UNKNOWN if is_slice else value)
            elif isinstance(atom, Result) and not isinstance(key, ast.Constant):
                self.changes = ResultChanges(self.changes.keys, True)
            elif isinstance(atom, Anything):
                loosen(value)
