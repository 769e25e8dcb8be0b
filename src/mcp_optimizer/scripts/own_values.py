"""What the values of a script certainly are, as far as its own text tells. Pure.

The type checker is told that displays are Any, because it takes them for what they hold at first for ever. What stays
certain is the kind of a name that is bound once, what the script's own functions return, and constants.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

_NOTHING = frozenset({"sort", "reverse", "append", "extend", "insert"})
"""Methods of lists that return None."""

_LOSING = frozenset({"pop", "popitem", "clear"})
_MOST_NODES = 2_000
_DEEPEST = 4
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Kind:
    """`list`, `dict`, `set`, `str`, `None`, or a tuple of so many values."""

    name: str
    length: int = -1
    made_by: str = ""
    """What returned it, for None."""


class OwnValues:
    """The names of one script that are bound exactly once."""

    def __init__(self, nodes: Iterable[ast.AST], bound: Iterable[str]) -> None:
        self._nodes = list(nodes)
        self._parents = {child: node for node in self._nodes for child in ast.iter_child_nodes(node)}
        self._loses_keys = any(isinstance(node, ast.Attribute) and node.attr in _LOSING for node in self._nodes)
        times = Counter(bound)
        self._values: dict[str, ast.expr] = {}
        self._functions: dict[str, _Function] = {}
        self._methods: set[str] = set()
        self._uses: dict[str, list[ast.Name]] = {}
        self._known: dict[str, Kind | None] = {}
        for node in self._nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    self._uses.setdefault(name, []).append(node)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if times[name] == 1:
                    self._values[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if times[name] == 1:
                    self._values[name] = value
                case ast.FunctionDef() | ast.AsyncFunctionDef() if isinstance(self._parents.get(node), ast.ClassDef):
                    self._methods.add(node.name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    if times[name] == 1 and not node.decorator_list:
                        self._functions[name] = node

    def kind(self, node: ast.AST | None, depth: int = 0) -> Kind | None:
        """What an expression certainly is; None if that is not certain."""
        match node:
            case ast.List() | ast.ListComp():
                return Kind("list")
            case ast.Dict() | ast.DictComp():
                return Kind("dict")
            case ast.Set() | ast.SetComp():
                return Kind("set")
            case ast.JoinedStr() | ast.Constant(value=str()):
                return Kind("str")
            case ast.Tuple(elts=parts) if not any(isinstance(part, ast.Starred) for part in parts):
                return Kind("tuple", len(parts))
            case ast.Name(id=name) if name in self._values and depth < _DEEPEST:
                return self.kind(self._values[name], depth + 1)
            case ast.Await(value=ast.Call(func=ast.Name(id=name))) | ast.Call(func=ast.Name(id=name)):
                return self._returned(name, isinstance(node, ast.Await), depth)
            case ast.Call(func=ast.Attribute(attr=name)) if name in _NOTHING - self._methods:
                return Kind("None", made_by=f".{name}()")
        return None

    def _returned(self, name: str, is_awaited: bool, depth: int) -> Kind | None:
        """What a call of a function of the script returns."""
        function = self._functions.get(name)
        if function is None or isinstance(function, ast.AsyncFunctionDef) != is_awaited:
            return None
        if name not in self._known:
            # What a function returns that calls itself is not known.
            self._known[name] = None
            self._known[name] = self._read(name, function, depth)
        return self._known[name]

    def _read(self, name: str, function: _Function, depth: int) -> Kind | None:
        if depth >= _DEEPEST:
            return None
        returns = [node.value for node in _inside(function) if isinstance(node, ast.Return)]
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _inside(function)):
            return None
        if all(value is None for value in returns):
            return None if _ends_early(function) else Kind("None", made_by=f"{name}()")
        kinds = {self.kind(value, depth + 1) for value in returns}
        return kinds.pop() if len(kinds) == 1 else None

    def resolved(self, node: ast.expr) -> ast.expr | None:
        """An expression with names of unchanging constants replaced by what they stand for; None if it gets large."""
        budget = [_MOST_NODES]
        found = self._resolved(node, 0, budget)
        return found if budget[0] > 0 else None

    def _resolved(self, node: ast.expr, depth: int, budget: list[int]) -> ast.expr:
        budget[0] -= 1
        if budget[0] <= 0 or depth > 2 * _DEEPEST:
            return node
        match node:
            case ast.Name(id=name) if (value := self._values.get(name)) is not None and self._is_constant(name, value):
                return self._resolved(value, depth + 1, budget)
            case ast.List(elts=parts):
                return ast.List([self._resolved(part, depth + 1, budget) for part in parts], ast.Load())
            case ast.Dict(keys=keys, values=values):
                return ast.Dict(keys, [self._resolved(value, depth + 1, budget) for value in values])
        return node

    def _is_constant(self, name: str, value: ast.expr) -> bool:
        """Whether nothing can change what the name stands for: it is immutable, or only read."""
        if isinstance(value, ast.Constant | ast.UnaryOp):
            return True
        if not isinstance(value, ast.List | ast.Dict | ast.ListComp):
            return False
        return all(map(self._is_only_read, self._uses.get(name, ())))

    def _is_only_read(self, use: ast.Name) -> bool:
        parent = self._parents.get(use)
        match parent:
            case ast.keyword() | ast.For() | ast.comprehension() | ast.Dict() | ast.List():
                return True
            case ast.Subscript(ctx=ast.Load(), value=value):
                # An element may be an object that is changed.
                return value is use and not isinstance(self._parents.get(parent), ast.Subscript | ast.Attribute)
            case ast.Call(func=ast.Name(id="parallel" | "len"), args=args):
                return use in args
        return False

    def problems(self, nodes: Collection[ast.AST]) -> Iterator[tuple[int, str]]:
        """Uses that fail whenever they are reached, by line."""
        for node in nodes:
            match node:
                case ast.Attribute(value=value, attr=name, lineno=line):
                    yield from self._attribute(line, self.kind(value), name)
                case ast.Subscript(value=value, lineno=line) | ast.For(iter=value, lineno=line):
                    yield from _of_nothing(line, self.kind(value))
                case ast.BinOp(left=left, right=right, lineno=line):
                    yield from _of_nothing(line, self.kind(left) or self.kind(right))
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=value, lineno=line):
                    yield from _unpacked(line, names, self.kind(value))
                case ast.For(target=ast.Tuple(elts=names), iter=ast.Name(id=name), lineno=line):
                    yield from self._unpacked_keys(line, names, name)

    def _attribute(self, line: int, kind: Kind | None, name: str) -> Iterator[tuple[int, str]]:
        yield from _of_nothing(line, kind)
        known = {"list": list, "dict": dict, "set": set, "str": str}
        if kind is not None and kind.name in known and not hasattr(known[kind.name], name):
            yield line, f"{kind.name} has no attribute {name!r}."

    def _unpacked_keys(self, line: int, names: list[ast.expr], over: str) -> Iterator[tuple[int, str]]:
        """A dict gives its keys: a word is no pair."""
        value = self._values.get(over)
        if not isinstance(value, ast.Dict) or any(isinstance(name, ast.Starred) for name in names):
            return
        keys = [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        if any(len(key) != len(names) for key in keys) and not self._loses_keys:
            yield line, f"iterating over a dict gives its keys, not pairs: write {over}.items()."


def _of_nothing(line: int, kind: Kind | None) -> Iterator[tuple[int, str]]:
    if kind is not None and kind.name == "None":
        advice = " Use sorted(...)." if kind.made_by == ".sort()" else ""
        yield line, f"{kind.made_by} returns None, which cannot be used like that.{advice}"


def _unpacked(line: int, names: list[ast.expr], kind: Kind | None) -> Iterator[tuple[int, str]]:
    if kind is None or any(isinstance(name, ast.Starred) for name in names):
        return
    yield from _of_nothing(line, kind)
    if kind.name == "tuple" and kind.length != len(names):
        yield line, f"{kind.length} values cannot be unpacked into {len(names)} names."


def _inside(function: _Function) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _ends_early(function: _Function) -> bool:
    """Whether a function may never return at all, as one does that only raises."""
    return any(isinstance(node, ast.Raise) for node in function.body)
