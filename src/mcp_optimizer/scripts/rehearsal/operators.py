"""The results of operators on two values, or why they certainly fail. Pure."""

from __future__ import annotations

import ast
from itertools import product

from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.scripts.problems import nearest, shown
from mcp_optimizer.scripts.rehearsal.lookups import CertainFailure, Outcome, ResultChanges, elements
from mcp_optimizer.scripts.rehearsal.values import (
    BOOL,
    DATE,
    DAY,
    DURATION,
    INT,
    NUMBER,
    NUMBERS,
    STR,
    UNKNOWN,
    Anything,
    Atom,
    Constant,
    OneOf,
    OwnCollection,
    Result,
    Tuple,
    Value,
    called,
    constant,
    join,
    kind,
    kinds,
    texts,
    without_constants,
)
from mcp_optimizer.scripts.stubs import ObjectType

_SIGNS: dict[type[ast.AST], str] = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"},
    **{ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="},
}
_DATES = frozenset({"date", "datetime"})
_KNOWN = NUMBERS | {
    "str",
    "list",
    "tuple",
    "dict",
    "set",
    "None",
    "function",
    "tool",
    "coroutine",
    "timedelta",
    *_DATES,
}
_ORDERED = frozenset({"str", "list", "tuple", "set", "timedelta", *_DATES})
_PERCENT = regex(r"%[-+0 #]*\d*(?:\.\d+)?([a-zA-Z%])")
_NUMERIC = regex(r"[,.0-9<>+\- =^]*[dfeEgGn%,]")


def combined(sign: ast.AST, left: Value, right: Value) -> Outcome:
    """`left + right`. Wrong if it fails for every combination of possibilities."""
    pairs = product(without_constants(left), without_constants(right))
    found = [_combined(sign, one, other) for one, other in pairs]
    good = [one for one in found if not isinstance(one, CertainFailure)]
    bad = [one for one in found if isinstance(one, CertainFailure)]
    return bad[0] if bad and not good else join(*good)


def _combined(sign: ast.AST, left: Atom, right: Atom) -> Outcome:
    one, other = kind(left), kind(right)
    if one not in _KNOWN or other not in _KNOWN or type(sign) not in _SIGNS:
        return UNKNOWN
    if one in NUMBERS and other in NUMBERS:
        is_whole = {one, other} <= {"int", "bool"} and not isinstance(sign, ast.Div | ast.Pow)
        return INT if is_whole else NUMBER
    if "timedelta" in (one, other) and {one, other} <= {"timedelta", *_DATES, *NUMBERS}:
        return _of_durations(sign, left, right)
    match sign:
        case ast.Sub() if one == other and one in _DATES:
            return DURATION
        case ast.Add() if one == other and one in ("str", "list", "tuple"):
            return STR if one == "str" else UNKNOWN
        case ast.Mult() if {one, other} & {"str", "list", "tuple"} and {one, other} & {"int", "bool", "number"}:
            return STR if "str" in (one, other) else UNKNOWN
        case ast.Mod() if one == "str":
            return STR
        case ast.BitOr() if one == other and one in ("dict", "set"):
            return UNKNOWN
        case ast.Sub() | ast.BitAnd() | ast.BitXor() if one == other == "set":
            return UNKNOWN
    return CertainFailure(f"{_pair(sign, left, right)} does not work.{_advice(sign, one, other)}")


def _of_durations(sign: ast.AST, left: Atom, right: Atom) -> Outcome:
    one, other = kind(left), kind(right)
    if isinstance(sign, ast.Add | ast.Sub):
        if {one, other} & NUMBERS:
            return CertainFailure(f"{_pair(sign, left, right)} does not work. Use timedelta(days=...).")
        return DATE if "datetime" in (one, other) else DAY if "date" in (one, other) else DURATION
    return UNKNOWN


def percent(text: str, value: Value) -> CertainFailure | None:
    """`text % value`: compares the number of values, and checks that numeric formats get numbers."""
    wanted = [sign for sign in _PERCENT.findall(text) if sign != "%"]
    only = next(iter(value)) if len(value) == 1 else None
    if "%(" in text or "*" in text or (not isinstance(only, Tuple) and (not kinds(value) or "tuple" in kinds(value))):
        return None
    given = list(only.parts) if isinstance(only, Tuple) else [value]
    if len(given) != len(wanted) and not (kinds(value) <= {"dict", "Counter"}):
        return CertainFailure(f"the text has {len(wanted)} places for values, and is given {len(given)}.")
    for sign, one in zip(wanted, given, strict=False):
        found = kinds(one)
        if sign in "difgeFGE" and found and found <= {"str", "list", "dict", "set", "None"}:
            return CertainFailure(f"%{sign} is for numbers, not for {called(next(iter(one)))}.")
    return None


def _pair(sign: ast.AST, left: Atom, right: Atom) -> str:
    return f"{called(left)} {_SIGNS[type(sign)]} {called(right)}"


def _advice(sign: ast.AST, one: str, other: str) -> str:
    if "timedelta" in (one, other) and {one, other} & NUMBERS:
        return " Use .days, or timedelta(days=...)."
    if {one, other} == _DATES:
        return " One has a time and the other has none: use .date() of the first."
    if "str" in (one, other) and {one, other} & _DATES:
        return " Use datetime.fromisoformat(text), or isoformat() of the date."
    if isinstance(sign, ast.Add) and "str" in (one, other):
        return " Use str(...) or an f-string."
    if isinstance(sign, ast.Add) and one == other == "dict":
        return " Use {**a, **b}."
    return " Use int(...) or float(...)." if "str" in (one, other) and {one, other} & NUMBERS else ""


def compared(sign: ast.AST, left: Value, right: Value) -> Outcome:
    """`left < right`, `left == right`, `left in right`."""
    match sign:
        case ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE():
            found = [_ordered(sign, one, other) for one, other in product(*map(without_constants, (left, right)))]
            return found[0] or BOOL if found and all(found) else BOOL
        case ast.Eq() | ast.NotEq() if _is_one_constant(left) and _is_one_constant(right):
            return constant((left == right) is isinstance(sign, ast.Eq))
        case ast.Is() | ast.IsNot() if kinds(right) == {"None"} and (kinds(left) == {"None"} or _is_one_constant(left)):
            return constant((kinds(left) == {"None"}) is isinstance(sign, ast.Is))
        case ast.Eq() | ast.NotEq():
            if {"str"} in (kinds(left), kinds(right)) and _is_date(left) | _is_date(right):
                return CertainFailure(f"a text is never equal to a date.{_advice(sign, 'str', 'date')}")
            return _never(left, right) or _never(right, left) or BOOL
        case ast.In() | ast.NotIn():
            return _contained(left, right) or BOOL
    return BOOL


def _is_date(value: Value) -> bool:
    return bool(kinds(value)) and kinds(value) <= _DATES


def _is_one_constant(value: Value) -> bool:
    return len(value) == 1 and isinstance(next(iter(value)), Constant)


def _ordered(sign: ast.AST, left: Atom, right: Atom) -> CertainFailure | None:
    one, other = kind(left), kind(right)
    if one not in _KNOWN or other not in _KNOWN or (one in NUMBERS and other in NUMBERS):
        return None
    if one == other and one in _ORDERED:
        return None
    return CertainFailure(f"{_pair(sign, left, right)} cannot be compared.{_advice(sign, one, other)}")


def _never(declared: Value, written: Value) -> CertainFailure | None:
    """The failure of comparing a declared value with a text that it can never equal, or None."""
    names = texts(written)
    if names is None or not declared:
        return None
    if all(isinstance(atom, OneOf) for atom in declared):
        known = [text for atom in declared if isinstance(atom, OneOf) for text in atom.texts]
        if not set(names) & set(known):
            near = nearest(names[0], known)
            end = f" Did you mean {near!r}?" if near else f" It is one of {', '.join(map(shown, known[:12]))}."
            return CertainFailure(f"this is never {shown(names[0])}.{end}")
    found = kinds(declared)
    if found and found <= NUMBERS - {"bool"}:
        return CertainFailure(f"{called(next(iter(declared)))} is never equal to the text {shown(names[0])}.")
    if all(isinstance(atom, Result) for atom in declared):
        return CertainFailure(f"{called(next(iter(declared)))} is never equal to the text {shown(names[0])}.")
    return None


def _contained(left: Value, right: Value) -> CertainFailure | None:
    found = kinds(right)
    if found and found <= NUMBERS | {"None", "function", "tool", "coroutine"}:
        return CertainFailure(f"{called(next(iter(right)))} contains nothing: `in` fails.")
    if found == {"str"} and (inner := kinds(left)) and "str" not in inner:
        return CertainFailure(f"a text contains only texts, not {called(next(iter(left)))}: use str(...).")
    if found == {"list"} and len(right) == 1 and (names := texts(left)) is not None:
        # `in` compares whole objects; it does not find a text that one of them holds.
        inner_value = elements(next(iter(right)), ResultChanges())
        if (
            isinstance(inner_value, CertainFailure)
            or not all(_is_object(atom) for atom in inner_value)
            or not inner_value
        ):
            return None
        return CertainFailure(f"a list of dicts never contains the text {shown(names[0])}: compare one of their keys.")
    if found <= {"list", "set", "tuple"} and found and len(right) == 1:
        return _of_choices(left, next(iter(right)))
    return None


def _is_object(atom: Atom) -> bool:
    return isinstance(atom, Result) and isinstance(atom.type, ObjectType)


def _of_choices(left: Value, right: Atom) -> CertainFailure | None:
    """The failure of searching for a declared choice among texts that it can never equal, or None."""
    inner = elements(right, ResultChanges())
    if isinstance(inner, CertainFailure) or (isinstance(right, OwnCollection) and Anything() in inner):
        return None
    return _never(left, inner)


def formatted(value: Value, spec: str) -> CertainFailure | None:
    """`f"{value:spec}"`, for kinds that support few formats."""
    found = kinds(value)
    if not found or not _NUMERIC.fullmatch(spec):
        return None
    if found <= {"str", "None", "list", "dict", "tuple", "set"}:
        return CertainFailure(f"{called(next(iter(value)))} has no format {shown(spec)}, which is for numbers.")
    return (
        CertainFailure(f"the format {shown(spec)} is for whole numbers.")
        if found == {"float"} and spec[-1] == "d"
        else None
    )


def sortable(value: Value) -> CertainFailure | None:
    """The failure of ordering elements that have no order, or None."""
    found = kinds(value)
    if found and found <= {"dict", "None"}:
        return CertainFailure("dicts have no order: give a key=lambda ..., such as key=lambda x: x['name'].")
    return None
