"""The results of Python's builtin functions and methods on kinds, or why a call certainly fails. Pure.

Covers only functions and methods that scripts use often; all others return an unknown value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mcp_optimizer.scripts.problems import is_slip, near_names
from mcp_optimizer.scripts.rehearsal.lookups import (
    CertainFailure,
    Outcome,
    ResultChanges,
    each,
    elements,
    hashed,
    item_of,
    no_key,
)
from mcp_optimizer.scripts.rehearsal.operators import sortable
from mcp_optimizer.scripts.rehearsal.values import (
    BOOL,
    DATE,
    DATES,
    DAY,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    NUMBERS,
    STR,
    UNKNOWN,
    Atom,
    Coroutine,
    OwnCollection,
    Plain,
    Result,
    Series,
    Tuple,
    Value,
    called,
    join,
    kind,
    kinds,
    loosen,
    named,
    of_field,
    texts,
)
from mcp_optimizer.scripts.stubs import MapType, ObjectType

_SIZED = frozenset({"str", "list", "dict", "set", "tuple", "range", "bytes", "dict_keys", "dict_values", "dict_items"})
_UNSIZED = NUMBERS | {"None", "function", "tool", "coroutine", "exception"}
NO_TEXT = NUMBERS | {"list", "dict", "set", "function", "tool", "coroutine"}
_DEEPEST_SET = 3
NUMBERED = frozenset({"floor", "ceil", "sqrt", "trunc", "log", "log10", "fabs"})
ON_TEXT = frozenset({"findall", "search", "match", "split", "fullmatch", "finditer"})


@dataclass(frozen=True)
class GivenArguments:
    """The arguments of a call, and the callbacks needed to evaluate it."""

    args: Sequence[Value]
    named: Mapping[str, Value]
    made: Callable[[str, Value], Value]
    """Makes a list or set of the script with these elements."""
    apply: Callable[[Value, Sequence[Value]], Value]
    """Calls a function value with arguments and returns its result."""
    changes: ResultChanges

    def items(self, at: int = 0) -> Outcome:
        return each(self.args[at], lambda atom: elements(atom, self.changes))


def function(name: str, given: GivenArguments) -> Outcome:
    """A call of a builtin function."""
    if name in ("int", "float", "round", "abs", "range", "chr", "pow", "divmod"):
        return _of_number(name, given)
    if name in _FIXED and not (given.args and name in ("len", "any", "all")):
        return _FIXED[name]
    if not given.args:
        return given.made("list" if name == "list" else name, frozenset()) if name in ("list", "set") else UNKNOWN
    return _FUNCTIONS[name](given) if name in _FUNCTIONS else UNKNOWN


_FIXED: dict[str, Value] = {
    **{"str": STR, "repr": STR, "format": STR, "bool": BOOL, "isinstance": BOOL, "hasattr": BOOL, "print": NONE},
    **{"len": INT, "any": BOOL, "all": BOOL},
}


def _of_number(name: str, given: GivenArguments) -> Outcome:
    found = kinds(given.args[0]) if given.args else frozenset()
    bad = {"list", "dict", "set", "tuple", "None", "function", "tool", "coroutine"}
    bad |= {"str"} if name not in ("int", "float") else set()
    bad |= {"float"} if name in ("range", "chr") else set()
    if found and found <= bad:
        return CertainFailure(f"{name}() takes a number, not {named(given.args[0])}.")
    if name == "range":
        return frozenset({Series("range", INT)})
    if name == "round" and len(given.args) == 1:
        return INT
    return {"int": INT, "float": FLOAT, "chr": STR}.get(name, NUMBER if name != "divmod" else UNKNOWN)


def _length(given: GivenArguments) -> Outcome:
    found = kinds(given.args[0])
    return CertainFailure(f"len() of {named(given.args[0])} does not work.") if found and found <= _UNSIZED else INT


def _all(given: GivenArguments) -> Outcome:
    found = given.items()
    return found if isinstance(found, CertainFailure) else BOOL


def _listed(given: GivenArguments) -> Outcome:
    found = given.items()
    return found if isinstance(found, CertainFailure) else given.made("list", found)


def _unique(given: GivenArguments) -> Outcome:
    found = given.items()
    if isinstance(found, CertainFailure):
        return found
    return hashed(found) or given.made("set", found)


def _ordered(given: GivenArguments) -> Outcome:
    found = given.items()
    if isinstance(found, CertainFailure):
        return found
    return keyed(given, found) or given.made("list", found)


def keyed(given: GivenArguments, item: Value) -> CertainFailure | None:
    """Why the elements cannot be ordered, or None."""
    if (key := given.named.get("key")) is not None and kinds(key) != {"None"}:
        return sortable(given.apply(key, [item]))
    return sortable(item)


def _most(given: GivenArguments) -> Outcome:
    if len(given.args) > 1:
        return join(*given.args)
    found = given.items()
    if isinstance(found, CertainFailure):
        return found
    return keyed(given, found) or join(found, given.named.get("default", frozenset()))


def _sum(given: GivenArguments) -> Outcome:
    found = given.items()
    if isinstance(found, CertainFailure):
        return found
    inner = kinds(found)
    if len(given.args) > 1 or "start" in given.named:
        return UNKNOWN
    if inner and inner <= {"str", "list", "dict", "tuple", "set", "None", "function", "coroutine"}:
        return CertainFailure(f"sum() adds numbers, not {named(found)}.")
    return INT if inner and inner <= {"int", "bool"} else NUMBER


def _zipped(given: GivenArguments) -> Outcome:
    found = [given.items(at) for at in range(len(given.args))]
    wrong = [one for one in found if isinstance(one, CertainFailure)]
    if wrong:
        return wrong[0]
    parts = tuple(one for one in found if not isinstance(one, CertainFailure))
    return given.made("list", frozenset({Tuple(parts)}) if all(parts) else frozenset())


def _numbered(given: GivenArguments) -> Outcome:
    found = given.items()
    if isinstance(found, CertainFailure):
        return found
    return given.made("list", frozenset({Tuple((INT, found))}) if found else frozenset())


def _mapped(given: GivenArguments) -> Outcome:
    if len(given.args) != 2:
        return UNKNOWN
    found = given.items(1)
    return found if isinstance(found, CertainFailure) else given.made("list", given.apply(given.args[0], [found]))


def _filtered(given: GivenArguments) -> Outcome:
    if len(given.args) != 2:
        return UNKNOWN
    found = given.items(1)
    if isinstance(found, CertainFailure):
        return found
    if kinds(given.args[0]) != {"None"}:
        given.apply(given.args[0], [found])
    return given.made("list", found)


def _next(given: GivenArguments) -> Outcome:
    found = given.items()
    return found if isinstance(found, CertainFailure) else join(found, *given.args[1:2])


_FUNCTIONS: dict[str, Callable[[GivenArguments], Outcome]] = {
    **{"len": _length, "any": _all, "all": _all, "list": _listed, "reversed": _listed, "set": _unique},
    **{"sorted": _ordered, "max": _most, "min": _most, "sum": _sum, "zip": _zipped, "enumerate": _numbered},
    **{"map": _mapped, "filter": _filtered, "next": _next, "iter": _listed},
}


_NAMES: dict[str, frozenset[str]] = {
    **dict.fromkeys(("len", "abs", "range", "any", "all", "list", "set", "isinstance", "map", "filter"), frozenset()),
    **dict.fromkeys(("max", "min"), frozenset({"key", "default"})),
    **{"round": frozenset({"number", "ndigits"}), "sorted": frozenset({"key", "reverse"})},
    **{"enumerate": frozenset({"iterable", "start"}), "sum": frozenset({"start"}), "zip": frozenset({"strict"})},
    **{"print": frozenset({"sep", "end", "file", "flush"}), "int": frozenset({"base"}), "float": frozenset()},
    "timedelta": frozenset("days seconds microseconds milliseconds minutes hours weeks".split()),
}
"""The keyword arguments of some functions."""


def unknown_names(name: str, given: Iterable[str]) -> Iterator[str]:
    """Problems with the keyword arguments of a builtin function."""
    taken = _NAMES.get(name)
    for one in given:
        if taken is not None and one not in taken:
            there = f"It takes {', '.join(sorted(taken))}." if taken else "It takes none by name."
            yield f"{name}() has no argument {one!r}. {there}"


def of_module(module: str, name: str, given: GivenArguments) -> Outcome:
    """A call of a module function that takes numbers or texts."""
    found = kinds(given.args[0]) if given.args else frozenset()
    if module == "math" and name in NUMBERED:
        if found and found.isdisjoint(NUMBERS):
            return CertainFailure(f"math.{name}() takes a number, not {named(given.args[0])}.")
        return INT if name in ("floor", "ceil", "trunc") else FLOAT
    if module == "json" and name == "loads" and found and found <= {"list", "dict"}:
        return CertainFailure("json.loads() takes a text; this is parsed already. Leave json.loads out.")
    if module == "json" and name == "dumps":
        has_set = bool(given.args) and "default" not in given.named and _has_set(given.args[0])
        return CertainFailure("a set is no JSON: use list(...).") if has_set else STR
    if module == "re" and name in ON_TEXT and len(given.args) > 1:
        inner = kinds(given.args[1])
        if inner and inner <= NO_TEXT | {"None"}:
            return CertainFailure(f"re.{name}() takes a text, not {named(given.args[1])}.")
    if module == "random" and name == "choice" and found and found <= NUMBERS | {"None", "set"}:
        return CertainFailure(f"random.choice() takes a list, not {called(next(iter(given.args[0])))}.")
    return UNKNOWN


def _has_set(value: Value, depth: int = 0) -> bool:
    """Whether a value is a set, or a list or dict of the script that holds only sets in some place."""
    if kinds(value) == {"set"}:
        return True
    inner = [
        part for atom in value if isinstance(atom, OwnCollection) for part in (atom.site.item, *atom.site.keys.values())
    ]
    return len(value) == 1 and depth < _DEEPEST_SET and any(_has_set(part, depth + 1) for part in inner)


def dates_of(of: Value) -> Value:
    """The result of calling a date class."""
    return DATE if of == DATES else DAY


def awaited(value: Value) -> Value:
    """The result of `await`; the value may already be a result."""
    return join(*(atom.value if isinstance(atom, Coroutine) else frozenset({atom}) for atom in value))


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


def method(atom: Atom, name: str, given: GivenArguments) -> Outcome:
    """A call of one of the value's methods."""
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


def _of_text(name: str, given: GivenArguments) -> Outcome:
    if name == "join" and given.args:
        found = given.items()
        inner = kinds(found) if not isinstance(found, CertainFailure) else frozenset()
        if isinstance(found, CertainFailure):
            return found
        if inner and "str" not in inner:
            return CertainFailure(f"join() takes texts, not {named(found)}: join(str(x) for x in ...).")
    if name in _TAKES_TEXT | _TO_TEXTS and given.args and name != "splitlines":
        found = given.args[0]
        if kinds(found) and kinds(found) <= NO_TEXT:
            return CertainFailure(f"{name}() takes a text, not {named(found)}.")
    if name == "replace" and len(given.args) > 1 and kinds(given.args[1]) and kinds(given.args[1]) <= NO_TEXT:
        return CertainFailure(f"replace() takes texts, not {named(given.args[1])}: use str(...).")
    if name in _TO_TEXTS:
        return given.made("list", STR)
    if name in ("partition", "rpartition"):
        return frozenset({Tuple((STR, STR, STR))})
    return STR if name in _TO_TEXT else BOOL if name in _TO_BOOL else INT if name in _TO_INT else UNKNOWN


def _of_dict(atom: Atom, name: str, given: GivenArguments) -> Outcome:
    keys = elements(atom, given.changes)
    assert not isinstance(keys, CertainFailure)
    if name == "get" and given.args:
        return _got(atom, given)
    if name in ("values", "items", "keys"):
        values = _values(atom, given.changes)
        inner = {"values": values, "keys": keys, "items": frozenset({Tuple((keys, values))}) if keys else frozenset()}
        return frozenset({Series(f"dict_{name}", inner[name])})
    if isinstance(atom, OwnCollection) and name == "setdefault" and len(given.args) == 2:
        atom.site.put(given.args[0], given.args[1])
        return item_of(atom, given.args[0], given.changes)
    if isinstance(atom, OwnCollection) and name == "pop" and given.args:
        found = item_of(atom, given.args[0], given.changes)
        return UNKNOWN if isinstance(found, CertainFailure) else join(found, *given.args[1:])
    if isinstance(atom, OwnCollection) and name in ("update", "setdefault", "clear", "popitem"):
        loosen(frozenset({atom}))
    return UNKNOWN


def _values(atom: Atom, changes: ResultChanges) -> Value:
    match atom:
        case OwnCollection(site):
            return site.all
        case Result(type=MapType(), tool=_):
            found = item_of(atom, STR, changes)
            return UNKNOWN if isinstance(found, CertainFailure) else found
    return UNKNOWN


def _got(atom: Atom, given: GivenArguments) -> Outcome:
    """`dict.get(key, default)`. A misspelt key of a declared result silently gives the default, so it is reported."""
    names, default = texts(given.args[0]), given.args[1] if len(given.args) > 1 else NONE
    if isinstance(atom, Result) and isinstance(atom.type, ObjectType):
        if names is None or given.changes.is_free:
            return UNKNOWN
        if set(names) & set(given.changes.keys) or atom.type.is_open:
            return join(*(of_field(atom.type, name, atom.tool) or UNKNOWN for name in names), default)
        found = [of_field(atom.type, name, atom.tool) for name in names]
        if any(value is not None for value in found):
            return join(*(value for value in found if value is not None), default)
        # A key unlike all declared ones may be one that the script knows to be optional.
        is_misspelt = any(_is_meant(names[0], one.name) for one in atom.type.fields)
        return no_key(atom.type, atom.tool, names[0]) if is_misspelt else default
    if isinstance(atom, OwnCollection):
        inner = item_of(atom, given.args[0], given.changes)
        return join(atom.site.item if isinstance(inner, CertainFailure) else inner, default)
    found_value = item_of(atom, given.args[0], given.changes)
    return UNKNOWN if isinstance(found_value, CertainFailure) else join(found_value, default)


def _of_counter(atom: Atom, name: str, given: GivenArguments) -> Outcome:
    keys = elements(atom, given.changes)
    assert isinstance(atom, OwnCollection)
    assert not isinstance(keys, CertainFailure)
    if name in ("update", "subtract"):
        found = given.items() if len(given.args) == 1 else UNKNOWN
        atom.site.put(UNKNOWN if isinstance(found, CertainFailure) else found, NUMBER)
    if name == "most_common":
        return given.made("list", frozenset({Tuple((keys, NUMBER))}) if keys else frozenset())
    inner = {"values": NUMBER, "keys": keys, "items": frozenset({Tuple((keys, NUMBER))}) if keys else frozenset()}
    return frozenset({Series(f"dict_{name}", inner[name])}) if name in inner else UNKNOWN


def _is_meant(name: str, key: str) -> bool:
    """Whether a name resembles a key, or its beginning, so closely that no other can be meant."""
    is_beginning = len(name) >= _SHORTEST and key.casefold().startswith(name.casefold())
    is_plural = f"{name}s" == key or name == f"{key}s"
    return not is_plural and (is_beginning or is_slip(name, key) or bool(near_names(name, [key], 1, _ALIKE)))


def _of_many(atom: Atom, name: str, given: GivenArguments) -> Outcome:
    if name in ("append", "add", "insert") and given.args:
        wrong = hashed(given.args[-1]) if kind(atom) == "set" else None
        if isinstance(atom, OwnCollection):
            atom.site.add(given.args[-1])
        return wrong or NONE
    if name in ("extend", "update") and given.args:
        found = given.items()
        if isinstance(found, CertainFailure):
            return CertainFailure(f"{name}() takes a list, not {named(given.args[0])}.")
        if isinstance(atom, OwnCollection):
            atom.site.add(found)
        return NONE
    if name == "pop":
        found = elements(atom, given.changes)
        return UNKNOWN if isinstance(found, CertainFailure) else found
    if name == "sort":
        found = elements(atom, given.changes)
        return (keyed(given, found) if not isinstance(found, CertainFailure) else None) or NONE
    if name in ("remove", "reverse", "clear", "discard"):
        return NONE
    if name in ("copy",):
        return frozenset({atom})
    if name in ("index", "count"):
        return INT
    return UNKNOWN
