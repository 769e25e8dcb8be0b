"""The possible values in a script, as far as its text and the tools' declarations show, and their names in messages.

Pure. A value is a set of possibilities. `ANYTHING` among them means that nothing is certain; only the script's own
lists and dicts are kept next to it, because they may be changed through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.scripts.stubs import (
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
"""Possibilities of one value that are kept apart."""

_LONGEST = 2_000
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Anything:
    """An unknown value."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A text, number, truth value, None, slice, class or exception; the kind `number` is an int or a float."""

    kind: str


@dataclass(frozen=True, slots=True)
class Constant:
    """One certain value. Its kind distinguishes 1 from True."""

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the texts that a tool declares as possible results."""

    texts: tuple[str, ...]
    tool: str


@dataclass(frozen=True, slots=True)
class Result:
    """An object or list in a tool's result."""

    type: ObjectType | MapType | ListType
    tool: str


@dataclass(frozen=True, slots=True)
class Tuple:
    parts: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """A value that supports only iteration: `zip`, `range`, the items of a dict."""

    kind: str
    item: Value


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the script, identified by its number in the script's text."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Coroutine:
    """The result of an `async` function before it is awaited."""

    value: Value
    name: str


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool that is named but not (yet) called."""

    spelling: str


@dataclass(eq=False, slots=True)
class CollectionSite:
    """All lists, sets or dicts made by one place in the script. It only grows, in whatever order changes come."""

    kind: str
    item: Value = frozenset()
    """The elements; for a dict, the values under unknown keys."""
    keys: dict[Any, Value] = field(default_factory=dict)
    key: Value = frozenset()
    """The keys of a dict that are not known individually."""
    default: Value = frozenset()
    """The value of a missing key, for a dict with a default."""
    lines: dict[Any, int] = field(default_factory=dict)
    """The line that first sets each key, if it is later than the line that makes the dict."""

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
        """Sets the value of a missing key."""
        self.default = join(self.default, default)

    def loosen(self) -> None:
        self.item = self.key = UNKNOWN
        self.keys = dict.fromkeys(self.keys, UNKNOWN)

    @property
    def all(self) -> Value:
        """All elements and values in it."""
        return join(self.item, self.default, *self.keys.values())

    @property
    def all_keys(self) -> Value:
        return join(self.key, frozenset(Constant(type(key).__name__, key) for key in self.keys))


@dataclass(frozen=True, slots=True)
class OwnCollection:
    """A list, set or dict made by the script."""

    site: CollectionSite


Atom = Anything | Plain | Constant | OneOf | Result | Tuple | Series | Function | Coroutine | NamedTool | OwnCollection
Value = frozenset[Atom]

ANYTHING = Anything()
UNKNOWN: Value = frozenset({ANYTHING})
NOTHING: Value = frozenset()
"""The value of code that is never reached, such as the elements of an empty list."""

STR, INT, FLOAT, NUMBER, BOOL, NONE = (
    frozenset({Plain(kind)}) for kind in ("str", "int", "float", "number", "bool", "None")
)
DATE, DAY, DURATION = (frozenset({Plain(kind)}) for kind in ("datetime", "date", "timedelta"))
DATES, DAYS, DURATIONS, DEFAULTS, COUNTERS = (
    frozenset({Plain(f"class of {kind}")}) for kind in ("dates", "days", "times", "dicts", "counts")
)
"""The classes for dates and times, `timedelta`, `defaultdict` and `Counter`."""

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
    """Forget the contents, because code outside the rehearsal may have changed them."""
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
    """The value after the script has tested its kind."""
    return UNKNOWN | frozenset(atom for atom in value if isinstance(atom, OwnCollection))


def tested(value: Value) -> Value:
    """The value after a comparison: no longer limited to its constants, and not None."""
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
    """`str`, `int`, `list`, `dict`, ...; "" for an unknown value."""
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
    """The possible kinds; empty if they are not certain."""
    found = frozenset(map(kind, value))
    return frozenset() if "" in found else found


def texts(value: Value) -> list[str] | None:
    """All texts that a value may be; None if they are not certain."""
    found = [atom.value for atom in value if isinstance(atom, Constant) and isinstance(atom.value, str)]
    return found if found and len(found) == len(value) else None


def of_type(found: PyType, tool: str) -> Value:
    """A part of a tool's result. None is treated as absent, because a script that reads it expects a value."""
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
    """The value of a field; None if the field is not declared."""
    return next((of_type(one.type, tool) for one in found.fields if one.name == name), None)


def without_constants(value: Value) -> Value:
    """The kinds of a value: one entry for many numbers."""
    return frozenset(Plain(atom.kind) if isinstance(atom, Constant) else atom for atom in value)


def constants(value: Value) -> Iterator[Constant]:
    return (atom for atom in value if isinstance(atom, Constant))


def sites(values: Iterable[Value]) -> Iterator[CollectionSite]:
    return (atom.site for value in values for atom in value if isinstance(atom, OwnCollection))


_WORDS = {"str": "a str", "int": "an int", "float": "a float", "number": "a number", "bool": "a bool"}
_WORDS |= {"None": "None", "exception": "an exception"}


def called(atom: Atom) -> str:
    """A value in words, for messages."""
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
