"""Groups the elements of a list by a key, for the functions that JMESPath lacks: count_by, group_by and sum_by. Pure.

Called by the interpreter, which passes how to find a key and whom to charge for long ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

_HASHED = 64
"""Characters of a key that are looked up in about one step, and bits of a number that are written in one."""


def grouped(
    elements: Sequence[Any], key_of: Callable[[Any], Any], spend: Callable[[int], None], function: str
) -> dict[str, list[Any]]:
    """The elements by the text of their key, in the order of their first element.

    The number 1 and the text "1" are different keys: where both are there, the one that is no text is put in brackets.
    """
    groups: dict[tuple[str, bool], list[Any]] = {}
    for element in elements:
        key = key_of(element)
        groups.setdefault((_text_of(key, spend, function), isinstance(key, str)), []).append(element)
    return {
        text if is_text or (text, True) not in groups else f"({text})": found
        for (text, is_text), found in groups.items()
    }


def counts(groups: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """How many elements each group has, largest first."""
    return _largest_first({key: len(elements) for key, elements in groups.items()})


def sums(groups: Mapping[str, Sequence[Any]], amount_of: Callable[[Any], Any]) -> dict[str, float]:
    """What the amounts in each group add up to, largest first; a null adds nothing."""
    found: dict[str, float] = {}
    for key, elements in groups.items():
        amounts = [amount for element in elements if (amount := amount_of(element)) is not None]
        found[key] = math.fsum(amounts) if any(isinstance(amount, float) for amount in amounts) else sum(amounts)
    return _largest_first(found)


_Number = TypeVar("_Number", int, float)


def _largest_first(found: Mapping[str, _Number]) -> dict[str, _Number]:
    return dict(sorted(found.items(), key=lambda entry: entry[1], reverse=True))


def _text_of(key: Any, spend: Callable[[int], None], function: str) -> str:
    """A key as text, because keys of JSON objects are texts."""
    if isinstance(key, str):
        spend(len(key) // _HASHED)
        return key
    if isinstance(key, int):
        spend(key.bit_length() // _HASHED)
    elif isinstance(key, list | dict):
        kind = "lists" if isinstance(key, list) else "objects"
        raise ValueError(f"{function}() cannot group by {kind}, only by texts, numbers, booleans or null")
    return json.dumps(key)
