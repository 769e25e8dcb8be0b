"""What the values of a script may be, as far as its text and the tools' declarations tell, and how messages name them.

Pure. A value is a set of possibilities. `ANYTHING` among them means that nothing is certain; only the lists and dicts
that the script made itself are kept beside it, because they may be changed through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.scripts.python_types import (
    ListType,
    LiteralType,
    MapType,
    ObjectType,
    PlainType,
    PyType,
    UnionType,
    without_none,
)

_MOST = 24
"""Possibilities of one value that are told apart."""

_LONGEST = 2_000
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Anything:
    """Nothing is known."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A text, number, truth value, None, slice, class or exception; `number` is whole or not."""

    kind: str


@dataclass(frozen=True, slots=True)
class Constant:
    """One certain value. The kind tells 1 and True apart."""

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the texts that a tool declares to return."""

    texts: tuple[str, ...]
    tool: str


@dataclass(frozen=True, slots=True)
class Result:
    """An object or list of a tool's result."""

    type: ObjectType | MapType | ListType
    tool: str


@dataclass(frozen=True, slots=True)
class Tuple:
    parts: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """What can be gone through and no more: `zip`, `range`, the items of a dict."""

    kind: str
    item: Value


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the script, by its number in the script's text."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Coroutine:
    """What an `async` function returns before it is awaited."""

    value: Value
    name: str


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool that is not called (yet)."""

    spelling: str


@dataclass(eq=False, slots=True)
class CollectionSite:
    """All lists, sets or dicts that one place in the script makes. Only grows, whatever the order of changes."""

    kind: str
    item: Value = frozenset()
    """The elements; of a dict, what stands under keys that are not known."""
    keys: dict[Any, Value] = field(default_factory=dict)
    key: Value = frozenset()
    """The keys of a dict that are not known one by one."""
    default: Value = frozenset()
    """What a key gives that is not there, if the dict makes one."""
    lines: dict[Any, int] = field(default_factory=dict)
    """Where each key is put in first, if that is later than where the dict is made."""

    def add(self, value: Value) -> None:
        self.item = join(self.item, value)

    def put(self, key: Value, value: Value, line: int = 0) -> None:
        known = [atom.value for atom in key if isinstance(atom, Constant)]
        if len(known) == len(key) and len(self.keys) < 200:
            for one in known:
                self.keys[one] = join(self.keys.get(one, frozenset()), value)
                self.lines[one] = min(line, self.lines.get(one, line))
        else:
            self.key, self.item = join(self.key, key), join(self.item, value)

    def give(self, default: Value) -> None:
        """A key that is not there gives this."""
        self.default = join(self.default, default)

    def loosen(self) -> None:
        self.item = self.key = UNKNOWN
        self.keys = dict.fromkeys(self.keys, UNKNOWN)

    @property
    def all(self) -> Value:
        """Everything that is in it."""
        return join(self.item, self.default, *self.keys.values())

    @property
    def all_keys(self) -> Value:
        return join(self.key, frozenset(Constant(type(key).__name__, key) for key in self.keys))


@dataclass(frozen=True, slots=True)
class OwnCollection:
    """A list, set or dict that the script makes."""

    site: CollectionSite


Atom = Anything | Plain | Constant | OneOf | Result | Tuple | Series | Function | Coroutine | NamedTool | OwnCollection
Value = frozenset[Atom]

ANYTHING = Anything()
UNKNOWN: Value = frozenset({ANYTHING})
NOTHING: Value = frozenset()
"""Of what is never reached, such as the elements of an empty list."""

STR, INT, FLOAT, NUMBER, BOOL, NONE = (
    frozenset({Plain(kind)}) for kind in ("str", "int", "float", "number", "bool", "None")
)
DATE, DAY, DURATION = (frozenset({Plain(kind)}) for kind in ("datetime", "date", "timedelta"))
DATES, DAYS, DURATIONS, DEFAULTS, COUNTERS = (
    frozenset({Plain(f"class of {kind}")}) for kind in ("dates", "days", "times", "dicts", "counts")
)
"""The classes that make dates and times, `timedelta`, `defaultdict` and `Counter`."""

NUMBERS = frozenset({"int", "float", "number", "bool"})


def join(*values: Value) -> Value:
    """Any of several values."""
    found: set[Atom] = set().union(*values)
    if len(found) > _MOST:
        found = {Plain(atom.kind) if isinstance(atom, Constant) else atom for atom in found}
    if len(found) > _MOST:
        loosen(frozenset(found))
        return UNKNOWN
    if ANYTHING in found:
        return frozenset(atom for atom in found if isinstance(atom, OwnCollection | Anything))
    return frozenset(found)


def loosen(value: Value, depth: int = 0) -> None:
    """Somebody else may have changed it."""
    for atom in value:
        match atom:
            case OwnCollection(site) if depth < _DEEPEST and site.item != UNKNOWN:
                inner = site.all
                site.loosen()
                loosen(inner, depth + 1)
            case Tuple(parts):
                for part in parts:
                    loosen(part, depth + 1)
            case Series(_, item) | Coroutine(item):
                loosen(item, depth + 1)


def doubted(value: Value) -> Value:
    """The value where the script has looked what kind it is."""
    return UNKNOWN | frozenset(atom for atom in value if isinstance(atom, OwnCollection))


def tested(value: Value) -> Value:
    """The value where the script has compared it: not just any of its constants, and not None."""
    there = frozenset(atom for atom in value if kind(atom) != "None")
    plain = frozenset(Plain(atom.kind) if isinstance(atom, Constant) else atom for atom in there)
    kinds = {kind(atom) for atom in plain}
    return plain if len(kinds) == 1 else doubted(value)


def constant(value: Any) -> Value:
    name = type(value).__name__
    if value is None:
        return NONE
    if name not in ("str", "int", "float", "bool", "bytes"):
        return UNKNOWN
    is_long = isinstance(value, str | bytes) and len(value) > _LONGEST
    return frozenset({Plain(name) if is_long else Constant(name, value)})


def kind(atom: Atom) -> str:
    """`str`, `int`, `list`, `dict`, ... or nothing for what may be anything."""
    match atom:
        case Plain(name) | Constant(name) | Series(name):
            return name
        case OneOf():
            return "str"
        case Result(type=found):
            return "list" if isinstance(found, ListType) else "dict"
        case OwnCollection(site):
            return site.kind
        case Tuple():
            return "tuple"
        case Function():
            return "function"
        case Coroutine():
            return "coroutine"
        case NamedTool():
            return "tool"
    return ""


def kinds(value: Value) -> frozenset[str]:
    """What it may be; nothing if that is not certain."""
    found = frozenset(map(kind, value))
    return frozenset() if "" in found else found


def texts(value: Value) -> list[str] | None:
    """The texts that it may be, all of them; None if that is not certain."""
    found = [atom.value for atom in value if isinstance(atom, Constant) and isinstance(atom.value, str)]
    return found if found and len(found) == len(value) else None


def of_type(found: PyType, tool: str) -> Value:
    """A part of a tool's result. None is as good as left out: who asks for it expects a value."""
    match without_none(found):
        case PlainType(name):
            known = {"str": "str", "int": "int", "float": "number", "bool": "bool"}
            return frozenset({Plain(known[name])}) if name in known else UNKNOWN
        case LiteralType(values):
            if all(isinstance(value, str) for value in values):
                return frozenset({OneOf(tuple(map(str, values)), tool)})
            return UNKNOWN
        case UnionType(parts):
            return join(*(of_type(part, tool) for part in parts))
        case ObjectType() | MapType() | ListType() as there:
            return frozenset({Result(there, tool)})


def of_field(found: ObjectType, name: str, tool: str) -> Value | None:
    """What stands under a key; None if it is not declared."""
    return next((of_type(one.type, tool) for one in found.fields if one.name == name), None)


def without_constants(value: Value) -> Value:
    """What kinds it may be: of many numbers, one."""
    return frozenset(Plain(atom.kind) if isinstance(atom, Constant) else atom for atom in value)


def constants(value: Value) -> Iterator[Constant]:
    return (atom for atom in value if isinstance(atom, Constant))


def sites(values: Iterable[Value]) -> Iterator[CollectionSite]:
    return (atom.site for value in values for atom in value if isinstance(atom, OwnCollection))


_WORDS = {"str": "a str", "int": "an int", "float": "a float", "number": "a number", "bool": "a bool"}
_WORDS |= {"None": "None", "exception": "an exception"}


def called(atom: Atom) -> str:
    """What a value is, in words."""
    match atom:
        case Result(tool=tool):
            return f"{'a list' if kind(atom) == 'list' else 'a dict'} (from {tool})"
        case NamedTool(spelling):
            return f"{spelling}, a tool that is not called: write {spelling}(...)"
        case Coroutine(name=name):
            return f"{name}(...) before it is awaited: write await {name}(...)"
        case Function(name=name):
            return f"the function {name}" if name else "a function"
    words = {
        "str": "a text",
        "int": "a whole number",
        "float": "a number",
        "number": "a number",
        "bool": "True or False",
    }
    return words.get(kind(atom)) or (kind(atom) if kind(atom) == "None" else f"a {kind(atom)}")


def named(value: Value) -> str:
    return called(min(value, key=repr)) if value else "nothing"
