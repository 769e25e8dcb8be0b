"""The results of looking up a key, an attribute or the elements of a value, or why that certainly fails. Pure.

Each function examines one possible value; `each` combines them: a use is wrong if it fails for all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from mcp_optimizer.scripts.problems import is_slip, nearest, shown
from mcp_optimizer.scripts.rehearsal.values import (
    ANYTHING,
    NUMBER,
    NUMBERS,
    STR,
    UNKNOWN,
    Anything,
    Atom,
    Constant,
    Coroutine,
    Function,
    NamedTool,
    OneOf,
    OwnCollection,
    Result,
    Series,
    Tuple,
    Value,
    called,
    join,
    kind,
    kinds,
    named,
    of_field,
    of_type,
    texts,
)
from mcp_optimizer.scripts.stubs import ListType, MapType, ObjectType

_MOST_KEYS = 12
_TYPES: dict[str, type] = {
    **{"str": str, "int": int, "float": float, "number": float, "bool": bool, "bytes": bytes, "None": type(None)},
    **{"list": list, "dict": dict, "set": set, "tuple": tuple, "range": range, "exception": RuntimeError},
    **{"datetime": datetime, "date": date, "timedelta": timedelta, "Counter": Counter},
}
_INDEXED = frozenset({"list", "tuple", "str", "bytes", "range"})
_NO_INDEX = frozenset({"str", "float", "None", "list", "dict", "set", "tuple", "function", "tool", "coroutine"})
VIEWS = frozenset({"dict_keys", "dict_values", "dict_items"})
_SINGLE = NUMBERS | {"None", "function", "tool", "coroutine", "exception", "date", "datetime"}
_UNHASHABLE = frozenset({"list", "dict", "set"})


@dataclass(frozen=True, slots=True)
class CertainFailure:
    """Why a use fails whenever it is reached."""

    message: str


@dataclass(frozen=True)
class ResultChanges:
    """How the script changes the results of tools, anywhere in it."""

    keys: Collection[str] = ()
    """Keys that it sets in objects, or reads in a way that allows for their absence."""
    is_free: bool = False
    """Whether it sets keys or adds elements that are not known."""


Outcome = Value | CertainFailure


def each(value: Value, use: Callable[[Atom], Outcome]) -> Outcome:
    """The combined outcome for all possibilities of a value."""
    found = [use(atom) for atom in value]
    right = [one for one in found if not isinstance(one, CertainFailure)]
    wrong = [one for one in found if isinstance(one, CertainFailure)]
    return wrong[0] if wrong and not right else join(*right)


def item_of(atom: Atom, key: Value, changes: ResultChanges) -> Outcome:
    """`value[key]`."""
    match atom:
        case Result(type=ObjectType() as found, tool=tool):
            return _of_object(found, tool, key, changes)
        case Result(type=MapType(value), tool=tool):
            if _is_position(key):
                return CertainFailure(f"{called(atom)} has texts as keys and no positions: use .items(), or a key.")
            return UNKNOWN if changes.is_free else of_type(value, tool)
        case OwnCollection(site) if site.kind == "dict":
            return _of_made(atom, key)
        case OwnCollection(site) if site.kind == "Counter":
            return UNKNOWN if ANYTHING in site.item else NUMBER
    if isinstance(atom, Anything):
        return UNKNOWN
    if kind(atom) not in _INDEXED:
        advice = ": write list(...) first" if kind(atom) in VIEWS | {"set"} else ""
        return CertainFailure(f"{called(atom)} cannot be asked for [...]{advice}.")
    of_key = kinds(key)
    if of_key and of_key <= _NO_INDEX:
        return CertainFailure(
            f"{called(atom)} has positions and no keys: [{_written(key)}] fails.{_towards(atom, key)}"
        )
    if of_key == {"slice"}:
        return frozenset({atom}) if kind(atom) != "tuple" else UNKNOWN
    if isinstance(atom, Tuple):
        places = [one.value for one in key if isinstance(one, Constant) and isinstance(one.value, int)]
        if not places or len(places) < len(key):
            return join(*atom.parts)
        right = [atom.parts[place] for place in places if -len(atom.parts) <= place < len(atom.parts)]
        return join(*right) if right else CertainFailure(f"a tuple of {len(atom.parts)} has no position {places[0]}.")
    return elements(atom, changes)


def _towards(atom: Atom, key: Value) -> str:
    """The key that was probably meant when a list is indexed with one."""
    if kind(atom) == "str":
        return " Iterating over a dict gives its keys: use .values() or ['...']."
    return " Iterate over it, or take an element first." if kinds(key) == {"str"} else ""


def _written(key: Value) -> str:
    found = texts(key)
    return shown(found[0]) if found else named(key)


def _is_position(key: Value) -> bool:
    found = kinds(key)
    return bool(found) and found <= {"int", "slice"}


def _of_object(found: ObjectType, tool: str, key: Value, changes: ResultChanges) -> Outcome:
    if _is_position(key):
        return CertainFailure(f"the result of {tool} is a dict there, not a list: it has the keys {_keys(found)}.")
    names = texts(key)
    if names is None or changes.is_free:
        return UNKNOWN
    right = [
        UNKNOWN if name in changes.keys else value
        for name in names
        if (value := of_field(found, name, tool)) is not None or _may_have(found, name) or name in changes.keys
    ]
    if right:
        # Only the script knows which of several keys belongs to which object.
        return join(*(UNKNOWN if value is None else value for value in right))
    return no_key(found, tool, next(name for name in names if of_field(found, name, tool) is None))


def _may_have(found: ObjectType, name: str) -> bool:
    """Whether an object may have an undeclared key: it is open, and the key is no misspelling of a declared one."""
    return found.is_open and not any(is_slip(name, one.name) for one in found.fields)


def no_key(found: ObjectType, tool: str, name: str) -> CertainFailure:
    """The failure for a key that a declared result lacks."""
    keys = [one.name for one in found.fields]
    end = f"Did you mean {near!r}?" if (near := nearest(name, keys)) else f"Its keys: {_keys(found)}."
    return CertainFailure(f"the result of {tool} has no key {shown(name)} there. {end}")


def _keys(found: ObjectType) -> str:
    more = ", ..." if len(found.fields) > _MOST_KEYS else ""
    return ", ".join(shown(one.name) for one in found.fields[:_MOST_KEYS]) + more


def _of_made(atom: OwnCollection, key: Value) -> Outcome:
    """A lookup in a dict of the script. A key that is never put into it is missing."""
    site, found = atom.site, kinds(key)
    if site.default:
        site.put(key, site.default)
    if found and found <= _UNHASHABLE | {"slice"}:
        return CertainFailure(f"{named(key)} cannot be the key of a dict.")
    names = [one.value for one in key if isinstance(one, Constant)]
    if len(names) < len(key):
        is_empty = not (site.key or site.keys or site.default)
        return _EMPTY if is_empty else site.all
    known = [site.keys[name] for name in names if name in site.keys]
    if known or ANYTHING in site.key or site.default:
        return join(*known, site.item, site.default)
    if site.key and not kinds(site.key).isdisjoint(found):
        return site.item
    if not site.key and not site.keys:
        return _EMPTY
    near = nearest(str(names[0]), [one for one in site.keys if isinstance(one, str)])
    there = ", ".join(repr(one)[:60] for one in list(site.keys)[:_MOST_KEYS]) or f"{named(site.key)}, always"
    return CertainFailure(
        f"the dict has no key {shown(str(names[0]))}. {f'Did you mean {near!r}?' if near else f'Keys: {there}.'}"
    )


_EMPTY = CertainFailure(
    "the dict is empty, nothing is ever put into it: use dict.get(key, 0), setdefault or a defaultdict."
)


def elements(atom: Atom, changes: ResultChanges) -> Outcome:
    """The elements that a loop over a value yields."""
    match atom:
        case Result(type=ListType(item), tool=tool):
            return UNKNOWN if changes.is_free else of_type(item, tool)
        case Result() | OneOf():
            return STR
        case OwnCollection(site):
            return site.all_keys if site.kind in ("dict", "Counter") else site.item
        case Tuple(parts):
            return join(*parts)
        case Series(_, item):
            return item
    if kind(atom) in _SINGLE:
        return CertainFailure(f"{called(atom)} cannot be iterated over.")
    return STR if kind(atom) == "str" else UNKNOWN


def attribute_of(atom: Atom, name: str) -> Outcome:
    """`value.name`: only whether it exists; its value is determined where it is called."""
    of_kind = _TYPES.get(kind(atom))
    if isinstance(atom, Anything) or name.startswith("__"):
        return UNKNOWN
    if isinstance(atom, NamedTool | Coroutine | Function):
        return CertainFailure(f"{called(atom)} has no attribute {shown(name)}.")
    if of_kind is None or hasattr(of_kind, name):
        return UNKNOWN
    if isinstance(atom, Result) and isinstance(atom.type, ObjectType):
        keys = [one.name for one in atom.type.fields]
        if (near := nearest(name, keys)) or not atom.type.is_open:
            end = f"write [{near!r}], not .{name}" if near else f"it has the keys {_keys(atom.type)}"
            return CertainFailure(f"the result of {atom.tool} is a dict: {end}.")
    if isinstance(atom, OwnCollection) and name in atom.site.keys:
        return CertainFailure(f"it is a dict: write [{name!r}], not .{name}.")
    near = nearest(name, [one for one in dir(of_kind) if not one.startswith("_")])
    end = f" Did you mean {near}?" if near else _FOREIGN.get((kind(atom), name), "")
    return CertainFailure(f"{called(atom)} has no attribute {shown(name)}.{end}")


_FOREIGN = {
    ("set", "append"): " Use add.",
    ("set", "extend"): " Use update.",
    ("list", "add"): " Use append.",
    ("list", "update"): " Use extend.",
    ("list", "push"): " Use append.",
    ("list", "items"): " Use enumerate(...), or a loop over its elements.",
    ("list", "keys"): " Its elements may have keys: take one first.",
    ("list", "get"): " Take an element first.",
    ("dict", "append"): " Use dict[key] = value.",
    ("dict", "add"): " Use dict[key] = value.",
    ("list", "split"): " It is a list already.",
    ("list", "strip"): " Take an element first.",
    ("list", "join"): " Write ', '.join(list).",
    ("tuple", "append"): " Use a list.",
    ("exception", "message"): " Use str(error).",
}


def unpacked(value: Value, number: int, over: Atom | None, changes: ResultChanges) -> Sequence[Value] | CertainFailure:
    """`a, b = value`. `over`: the value that a loop iterates, if there is only one."""
    if value and all(isinstance(atom, Result) and isinstance(atom.type, ObjectType) for atom in value):
        return CertainFailure(
            f"a dict gives its keys, not its values: {named(value)} cannot be unpacked into {number} names."
        )
    if number == 2 and isinstance(over, Result) and kind(over) == "dict":
        return CertainFailure("iterating over a dict gives its keys, not pairs: write .items().")
    parts: list[list[Value]] = [[] for _ in range(number)]

    def take(atom: Atom) -> Outcome:
        least, most = _length(atom)
        if not least <= number <= most:
            pairs = " A dict gives its keys: write .items()." if over is not None and kind(over) == "dict" else ""
            return CertainFailure(f"{least} values{of_keys(atom)} cannot be unpacked into {number} names.{pairs}")
        inner = elements(atom, changes)
        if isinstance(inner, CertainFailure):
            return CertainFailure(f"{called(atom)} cannot be unpacked into {number} names.")
        for at, part in enumerate(parts):
            part.append(atom.parts[at] if isinstance(atom, Tuple) else inner)
        return inner

    found = each(value, take)
    return found if isinstance(found, CertainFailure) else [join(*part) if part else UNKNOWN for part in parts]


def _length(atom: Atom) -> tuple[float, float]:
    """The minimum and maximum number of elements."""
    match atom:
        case Tuple(parts):
            return len(parts), len(parts)
        case Constant("str", text):
            return len(text), len(text)
        case Result(type=ObjectType(fields) as found):
            return sum(one.is_required for one in fields), math.inf if found.is_open else len(fields)
    return 0, math.inf


def of_keys(atom: Atom) -> str:
    return " (the keys of a dict)" if kind(atom) == "dict" else ""


def hashed(value: Value) -> CertainFailure | None:
    """Why a value cannot be a dict key or a set element, or None."""
    found = kinds(value)
    if found and found <= _UNHASHABLE:
        return CertainFailure(f"{named(value)} cannot be in a set or a key of a dict: use one of its texts or numbers.")
    return None
