"""Finds functions that an expression misuses, which jmespath itself reports only when the expression is applied.

Called before a tool is called, because a call that changes something must not be wasted on a mistake in `select`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from mcp_optimizer.results.interpreter import SelectFunctions

_LONGEST = 40

_MEANT = {
    "average": "avg",
    "count": "length",
    "distinct": "count_by",
    "len": "length",
    "mean": "avg",
    "size": "length",
    "str": "to_string",
    "unique": "count_by",
}
"""Functions of other languages that are not spelled like ours."""


def misused_functions(node: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the functions of an expression."""
    if node["type"] == "function_expression":
        known = SelectFunctions.FUNCTION_TABLE.get(node["value"])
        yield from [_unknown(node["value"])] if known is None else _misused(node, known["signature"])
    for child in node["children"]:
        # The children of a slice are numbers.
        if isinstance(child, dict):
            yield from misused_functions(child)


def _unknown(name: str) -> str:
    name = name[:_LONGEST]
    meant = dict.fromkeys([_MEANT[name.lower()]] if name.lower() in _MEANT else [])
    meant |= dict.fromkeys(get_close_matches(name.lower(), SelectFunctions.FUNCTION_TABLE, n=2, cutoff=0.7))
    there_are = " and ".join(f"{one}()" for one in list(meant)[:2])
    known = f"; {there_are} {'exist' if len(meant) > 1 else 'exists'}" if meant else ""
    return f"there is no function {name}(){known}"


def _misused(node: Mapping[str, Any], signature: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    name, given = node["value"], node["children"]
    wanted, is_open = len(signature), any(one.get("variadic") for one in signature)
    if len(given) < wanted or (len(given) > wanted and not is_open):
        arguments = "argument" if wanted == 1 and not is_open else "arguments"
        yield f"{name}() takes {wanted}{' or more' if is_open else ''} {arguments}, not {len(given)}"
        return
    for number, (kinds, argument) in enumerate(zip(signature, given, strict=False), start=1):
        if kinds["types"] == ["expref"] and argument["type"] != "expref":
            yield f"argument {number} of {name}() must begin with &, as in {_USES.get(name, f'{name}(items, &key)')}"


_USES = {"map": "map(&key, items)", "sum_by": "sum_by(items, &key, &amount)"}
