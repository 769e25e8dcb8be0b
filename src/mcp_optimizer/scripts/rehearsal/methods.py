"""What the methods of texts, lists, sets, dicts and dates make of values, or why they certainly fail. Pure."""

from __future__ import annotations

from mcp_optimizer.scripts.problems import is_slip, near_names
from mcp_optimizer.scripts.rehearsal.functions import NO_TEXT, Handed, keyed
from mcp_optimizer.scripts.rehearsal.uses import Outcome, ResultChanges, Wrong, elements, hashed, item_of, no_key
from mcp_optimizer.scripts.rehearsal.values import (
    BOOL,
    DATE,
    DAY,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    STR,
    UNKNOWN,
    Atom,
    Own,
    Plain,
    Result,
    Series,
    Tuple,
    Value,
    join,
    kind,
    kinds,
    loosen,
    of_field,
    texts,
)
from mcp_optimizer.scripts.rehearsal.words import named
from mcp_optimizer.scripts.types_of import MapType, ObjectType

_TO_TEXT = frozenset(
    "capitalize casefold center expandtabs format join ljust lower lstrip removeprefix removesuffix replace rjust "
    "rstrip strip swapcase title translate upper zfill".split()
)
_TO_BOOL = frozenset(
    "endswith isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle "
    "isupper startswith".split()
)
_TO_INT = frozenset("count find index rfind rindex".split())
_TO_TEXTS = frozenset({"split", "rsplit", "splitlines"})
_TAKES_TEXT = frozenset(
    "startswith endswith replace find rfind index rindex count strip lstrip rstrip removeprefix removesuffix partition "
    "rpartition".split()
)
ADDING = frozenset({"append", "add", "extend", "insert", "update", "setdefault"})


_SHORTEST, _ALIKE = 3, 0.8
_OF_DATES: dict[str, Value] = {
    **{"isoformat": STR, "strftime": STR, "weekday": INT, "isoweekday": INT, "timestamp": FLOAT},
    **{"date": DAY, "astimezone": DATE},
}


def method(atom: Atom, name: str, given: Handed) -> Outcome:
    """A call of a method that the value has."""
    match kind(atom):
        case "str":
            return _of_text(name, given)
        case "dict":
            return _of_dict(atom, name, given)
        case "list" | "set":
            return _of_many(atom, name, given)
        case "Counter":
            return _of_counter(atom, name, given)
        case "date" | "datetime" as of:
            return frozenset({Plain(of)}) if name == "replace" else _OF_DATES.get(name, UNKNOWN)
    return UNKNOWN


def _of_text(name: str, given: Handed) -> Outcome:
    if name == "join" and given.args:
        found = given.items()
        inner = kinds(found) if not isinstance(found, Wrong) else frozenset()
        if isinstance(found, Wrong):
            return found
        if inner and "str" not in inner:
            return Wrong(f"join() takes texts, not {named(found)}: join(str(x) for x in ...).")
    if name in _TAKES_TEXT | _TO_TEXTS and given.args and name != "splitlines":
        found = given.args[0]
        if kinds(found) and kinds(found) <= NO_TEXT:
            return Wrong(f"{name}() takes a text, not {named(found)}.")
    if name == "replace" and len(given.args) > 1 and kinds(given.args[1]) and kinds(given.args[1]) <= NO_TEXT:
        return Wrong(f"replace() takes texts, not {named(given.args[1])}: use str(...).")
    if name in _TO_TEXTS:
        return given.made("list", STR)
    if name in ("partition", "rpartition"):
        return frozenset({Tuple((STR, STR, STR))})
    return STR if name in _TO_TEXT else BOOL if name in _TO_BOOL else INT if name in _TO_INT else UNKNOWN


def _of_dict(atom: Atom, name: str, given: Handed) -> Outcome:
    keys = elements(atom, given.changes)
    assert not isinstance(keys, Wrong)
    if name == "get" and given.args:
        return _got(atom, given)
    if name in ("values", "items", "keys"):
        values = _values(atom, given.changes)
        inner = {"values": values, "keys": keys, "items": frozenset({Tuple((keys, values))}) if keys else frozenset()}
        return frozenset({Series(f"dict_{name}", inner[name])})
    if isinstance(atom, Own) and name == "setdefault" and len(given.args) == 2:
        atom.site.put(given.args[0], given.args[1])
        return item_of(atom, given.args[0], given.changes)
    if isinstance(atom, Own) and name == "pop" and given.args:
        found = item_of(atom, given.args[0], given.changes)
        return UNKNOWN if isinstance(found, Wrong) else join(found, *given.args[1:])
    if isinstance(atom, Own) and name in ("update", "setdefault", "clear", "popitem"):
        loosen(frozenset({atom}))
    return UNKNOWN


def _values(atom: Atom, changes: ResultChanges) -> Value:
    match atom:
        case Own(site):
            return site.all
        case Result(type=MapType(), tool=_):
            found = item_of(atom, STR, changes)
            return UNKNOWN if isinstance(found, Wrong) else found
    return UNKNOWN


def _got(atom: Atom, given: Handed) -> Outcome:
    """`dict.get(key, default)`. Who asks a declared result for a key that it never has gets nothing, without a word."""
    names, default = texts(given.args[0]), given.args[1] if len(given.args) > 1 else NONE
    if isinstance(atom, Result) and isinstance(atom.type, ObjectType):
        if names is None or given.changes.is_free:
            return UNKNOWN
        if set(names) & set(given.changes.keys) or atom.type.is_open:
            return join(*(of_field(atom.type, name, atom.tool) or UNKNOWN for name in names), default)
        found = [of_field(atom.type, name, atom.tool) for name in names]
        if any(value is not None for value in found):
            return join(*(value for value in found if value is not None), default)
        # A key that is like none of them may be one that the script knows to be missing here.
        is_misspelt = any(_is_meant(names[0], one.name) for one in atom.type.fields)
        return no_key(atom.type, atom.tool, names[0]) if is_misspelt else default
    if isinstance(atom, Own):
        inner = item_of(atom, given.args[0], given.changes)
        return join(atom.site.item if isinstance(inner, Wrong) else inner, default)
    found_value = item_of(atom, given.args[0], given.changes)
    return UNKNOWN if isinstance(found_value, Wrong) else join(found_value, default)


def _of_counter(atom: Atom, name: str, given: Handed) -> Outcome:
    keys = elements(atom, given.changes)
    assert isinstance(atom, Own)
    assert not isinstance(keys, Wrong)
    if name in ("update", "subtract"):
        found = given.items() if len(given.args) == 1 else UNKNOWN
        atom.site.put(UNKNOWN if isinstance(found, Wrong) else found, NUMBER)
    if name == "most_common":
        return given.made("list", frozenset({Tuple((keys, NUMBER))}) if keys else frozenset())
    inner = {"values": NUMBER, "keys": keys, "items": frozenset({Tuple((keys, NUMBER))}) if keys else frozenset()}
    return frozenset({Series(f"dict_{name}", inner[name])}) if name in inner else UNKNOWN


def _is_meant(name: str, key: str) -> bool:
    """Whether a name is so much like a key, or like its beginning, that no other can be meant."""
    is_beginning = len(name) >= _SHORTEST and key.casefold().startswith(name.casefold())
    is_plural = f"{name}s" == key or name == f"{key}s"
    return not is_plural and (is_beginning or is_slip(name, key) or bool(near_names(name, [key], 1, _ALIKE)))


def _of_many(atom: Atom, name: str, given: Handed) -> Outcome:
    if name in ("append", "add", "insert") and given.args:
        wrong = hashed(given.args[-1]) if kind(atom) == "set" else None
        if isinstance(atom, Own):
            atom.site.add(given.args[-1])
        return wrong or NONE
    if name in ("extend", "update") and given.args:
        found = given.items()
        if isinstance(found, Wrong):
            return Wrong(f"{name}() takes a list, not {named(given.args[0])}.")
        if isinstance(atom, Own):
            atom.site.add(found)
        return NONE
    if name == "pop":
        found = elements(atom, given.changes)
        return UNKNOWN if isinstance(found, Wrong) else found
    if name == "sort":
        found = elements(atom, given.changes)
        return (keyed(given, found) if not isinstance(found, Wrong) else None) or NONE
    if name in ("remove", "reverse", "clear", "discard"):
        return NONE
    if name in ("copy",):
        return frozenset({atom})
    if name in ("index", "count"):
        return INT
    return UNKNOWN
