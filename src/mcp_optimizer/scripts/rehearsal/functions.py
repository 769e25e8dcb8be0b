"""What Python's own functions and methods make of values, or why they certainly fail. Pure.

Only what scripts use a lot; of everything else nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mcp_optimizer.scripts.rehearsal.operators import sortable
from mcp_optimizer.scripts.rehearsal.uses import Outcome, ResultChanges, Wrong, each, elements, hashed
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
    Coroutine,
    Own,
    Series,
    Tuple,
    Value,
    join,
    kinds,
)
from mcp_optimizer.scripts.rehearsal.words import called, named

_SIZED = frozenset({"str", "list", "dict", "set", "tuple", "range", "bytes", "dict_keys", "dict_values", "dict_items"})
_UNSIZED = NUMBERS | {"None", "function", "tool", "coroutine", "exception"}
NO_TEXT = NUMBERS | {"list", "dict", "set", "function", "tool", "coroutine"}
_DEEPEST_SET = 3
NUMBERED = frozenset({"floor", "ceil", "sqrt", "trunc", "log", "log10", "fabs"})
ON_TEXT = frozenset({"findall", "search", "match", "split", "fullmatch", "finditer"})


@dataclass(frozen=True)
class Handed:
    """The arguments of a call, and what is needed to go on with them."""

    args: Sequence[Value]
    named: Mapping[str, Value]
    made: Callable[[str, Value], Value]
    """A list or set of the script's, with these elements."""
    apply: Callable[[Value, Sequence[Value]], Value]
    """What a function returns for arguments."""
    changes: ResultChanges

    def items(self, at: int = 0) -> Outcome:
        return each(self.args[at], lambda atom: elements(atom, self.changes))


def function(name: str, given: Handed) -> Outcome:
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


def _of_number(name: str, given: Handed) -> Outcome:
    found = kinds(given.args[0]) if given.args else frozenset()
    bad = {"list", "dict", "set", "tuple", "None", "function", "tool", "coroutine"}
    bad |= {"str"} if name not in ("int", "float") else set()
    bad |= {"float"} if name in ("range", "chr") else set()
    if found and found <= bad:
        return Wrong(f"{name}() takes a number, not {named(given.args[0])}.")
    if name == "range":
        return frozenset({Series("range", INT)})
    if name == "round" and len(given.args) == 1:
        return INT
    return {"int": INT, "float": FLOAT, "chr": STR}.get(name, NUMBER if name != "divmod" else UNKNOWN)


def _length(given: Handed) -> Outcome:
    found = kinds(given.args[0])
    return Wrong(f"len() of {named(given.args[0])} does not work.") if found and found <= _UNSIZED else INT


def _all(given: Handed) -> Outcome:
    found = given.items()
    return found if isinstance(found, Wrong) else BOOL


def _listed(given: Handed) -> Outcome:
    found = given.items()
    return found if isinstance(found, Wrong) else given.made("list", found)


def _unique(given: Handed) -> Outcome:
    found = given.items()
    if isinstance(found, Wrong):
        return found
    return hashed(found) or given.made("set", found)


def _ordered(given: Handed) -> Outcome:
    found = given.items()
    if isinstance(found, Wrong):
        return found
    return keyed(given, found) or given.made("list", found)


def keyed(given: Handed, item: Value) -> Wrong | None:
    """What is wrong with how elements are put in order."""
    if (key := given.named.get("key")) is not None and kinds(key) != {"None"}:
        return sortable(given.apply(key, [item]))
    return sortable(item)


def _most(given: Handed) -> Outcome:
    if len(given.args) > 1:
        return join(*given.args)
    found = given.items()
    if isinstance(found, Wrong):
        return found
    return keyed(given, found) or join(found, given.named.get("default", frozenset()))


def _sum(given: Handed) -> Outcome:
    found = given.items()
    if isinstance(found, Wrong):
        return found
    inner = kinds(found)
    if len(given.args) > 1 or "start" in given.named:
        return UNKNOWN
    if inner and inner <= {"str", "list", "dict", "tuple", "set", "None", "function", "coroutine"}:
        return Wrong(f"sum() adds numbers, not {named(found)}.")
    return INT if inner and inner <= {"int", "bool"} else NUMBER


def _zipped(given: Handed) -> Outcome:
    found = [given.items(at) for at in range(len(given.args))]
    wrong = [one for one in found if isinstance(one, Wrong)]
    if wrong:
        return wrong[0]
    parts = tuple(one for one in found if not isinstance(one, Wrong))
    return given.made("list", frozenset({Tuple(parts)}) if all(parts) else frozenset())


def _numbered(given: Handed) -> Outcome:
    found = given.items()
    if isinstance(found, Wrong):
        return found
    return given.made("list", frozenset({Tuple((INT, found))}) if found else frozenset())


def _mapped(given: Handed) -> Outcome:
    if len(given.args) != 2:
        return UNKNOWN
    found = given.items(1)
    return found if isinstance(found, Wrong) else given.made("list", given.apply(given.args[0], [found]))


def _filtered(given: Handed) -> Outcome:
    if len(given.args) != 2:
        return UNKNOWN
    found = given.items(1)
    if isinstance(found, Wrong):
        return found
    if kinds(given.args[0]) != {"None"}:
        given.apply(given.args[0], [found])
    return given.made("list", found)


def _next(given: Handed) -> Outcome:
    found = given.items()
    return found if isinstance(found, Wrong) else join(found, *given.args[1:2])


_FUNCTIONS: dict[str, Callable[[Handed], Outcome]] = {
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
"""What some functions take by name."""


def unknown_names(name: str, given: Iterable[str]) -> Iterator[str]:
    """What is wrong with the names of arguments of a function of Python's own."""
    taken = _NAMES.get(name)
    for one in given:
        if taken is not None and one not in taken:
            there = f"It takes {', '.join(sorted(taken))}." if taken else "It takes none by name."
            yield f"{name}() has no argument {one!r}. {there}"


def of_module(module: str, name: str, given: Handed) -> Outcome:
    """A function of a module that takes numbers, or texts."""
    found = kinds(given.args[0]) if given.args else frozenset()
    if module == "math" and name in NUMBERED:
        if found and found.isdisjoint(NUMBERS):
            return Wrong(f"math.{name}() takes a number, not {named(given.args[0])}.")
        return INT if name in ("floor", "ceil", "trunc") else FLOAT
    if module == "json" and name == "loads" and found and found <= {"list", "dict"}:
        return Wrong("json.loads() takes a text; this is parsed already. Leave json.loads out.")
    if module == "json" and name == "dumps":
        has_set = bool(given.args) and "default" not in given.named and _has_set(given.args[0])
        return Wrong("a set is no JSON: use list(...).") if has_set else STR
    if module == "re" and name in ON_TEXT and len(given.args) > 1:
        inner = kinds(given.args[1])
        if inner and inner <= NO_TEXT | {"None"}:
            return Wrong(f"re.{name}() takes a text, not {named(given.args[1])}.")
    if module == "random" and name == "choice" and found and found <= NUMBERS | {"None", "set"}:
        return Wrong(f"random.choice() takes a list, not {called(next(iter(given.args[0])))}.")
    return UNKNOWN


def _has_set(value: Value, depth: int = 0) -> bool:
    """Whether it is a set, or a list or dict of the script's with nothing but sets in some place."""
    if kinds(value) == {"set"}:
        return True
    inner = [part for atom in value if isinstance(atom, Own) for part in (atom.site.item, *atom.site.keys.values())]
    return len(value) == 1 and depth < _DEEPEST_SET and any(_has_set(part, depth + 1) for part in inner)


def dates_of(of: Value) -> Value:
    """What a class of dates makes."""
    return DATE if of == DATES else DAY


def awaited(value: Value) -> Value:
    """What `await` makes of a value, which may be a result already."""
    return join(*(atom.value if isinstance(atom, Coroutine) else frozenset({atom}) for atom in value))
