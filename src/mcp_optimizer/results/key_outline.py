"""Outlines the keys of a value on one short line, such as `{total, cards[]: {card_id, title}}`, without values. Pure.

Shown to a model whose expression matched nothing. The work is bounded by the length of the line, even for a value with
a million keys, keys of a megabyte, or a thousand levels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from mcp_optimizer.runtime.patterns import regex

SIZES = (240, 160, 100, 60)
"""Sizes in bytes of the outlines to choose from. The last outline has at most that many tokens in any encoding."""

_PLAIN = regex(r"[A-Za-z_][A-Za-z0-9_]*")
"""Keys that JMESPath takes without quotes."""

_LONGEST_KEY = 32
"""Bytes of a key that are shown."""

_QUOTE = '"'
_ELEMENTS = 5
"""Elements of a list whose keys are merged, because some elements may lack a key."""

_FORMS = (*((depth, keys) for depth in (4, 3, 2, 1) for keys in (40, 20, 10)), (1, 5), (1, 3), (1, 1), (0, 0))
"""Levels and keys per level to try, from the most detailed to the least."""


class _TooLong(Exception):
    """The outline does not fit."""


def outlines(values: Sequence[Any]) -> list[str]:
    """Outlines of values of one kind, such as the elements of a list, one for each size, longest first.

    Empty if the values have no keys and are not lists.
    """
    first = values[:_ELEMENTS]
    return list(filter(None, dict.fromkeys(_outline(first, size) for size in SIZES)))


def _outline(values: Sequence[Any], size: int) -> str:
    for depth, keys in _FORMS:
        try:
            text = "".join(_within(_shape(values, depth, keys), size))
        except _TooLong:
            continue
        return text
    return ""


def _within(parts: Iterator[str], size: int) -> Iterator[str]:
    for part in parts:
        size -= len(part.encode())
        if size < 0:
            raise _TooLong
        yield part


def _shape(values: Sequence[Any], depth: int, most: int) -> Iterator[str]:
    """The parts of the line for values in the same place."""
    if objects := [value for value in values if isinstance(value, dict)]:
        yield from _object(objects, depth, most)
    elif lists := [value for value in values if isinstance(value, list)]:
        yield "[]"
        yield from _member(_elements(lists), depth, most)


def _object(objects: Sequence[dict[Any, Any]], depth: int, most: int) -> Iterator[str]:
    if not any(objects):
        yield "{}"
        return
    if depth <= 0:
        yield "{…}"
        return
    # One key more than is shown, to find out whether there are more.
    names = list(islice(dict.fromkeys(name for one in objects for name in islice(one, most + 1)), most + 1))
    for number, name in enumerate(names[:most]):
        yield ", " if number else "{"
        yield written_key(name)
        yield from _member([one[name] for one in objects if name in one], depth - 1, most)
    left = max(map(len, objects)) - most
    yield f", +{left:,} more}}" if left > 0 else ", …}" if len(names) > most else "}"


def _member(values: Sequence[Any], depth: int, most: int) -> Iterator[str]:
    """What follows the name of a list or object."""
    if objects := [value for value in values if isinstance(value, dict)]:
        yield ": "
        yield from _object(objects, depth, most)
    elif (lists := [value for value in values if isinstance(value, list)]) and depth >= 0:
        elements = _elements(lists)
        # Mark an empty list: no expression can find anything in it.
        yield "[]" if elements else ": []"
        is_nested = any(isinstance(element, list) for element in elements)
        yield from _member(elements, depth - is_nested, most)


def _elements(lists: Sequence[list[Any]]) -> list[Any]:
    return [element for one in lists[:_ELEMENTS] for element in islice(one, _ELEMENTS)][:_ELEMENTS]


def written_key(name: str) -> str:
    """A key as written in an expression, shortened if it is long."""
    text = name[:_LONGEST_KEY]
    if text == name and _PLAIN.fullmatch(text):
        return text
    quoted = json.dumps(text, ensure_ascii=not text.isprintable())
    shown = quoted.encode()[: _LONGEST_KEY + 2].decode(errors="ignore")
    return quoted if text == name and shown == quoted else f'{shown.removesuffix(_QUOTE)}…"'
