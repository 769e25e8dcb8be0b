"""Moves the type of a schema behind its other keywords if the vocabulary makes that cheaper. Pure except for counting.

The order of keywords has no meaning, but tokenizers merge runs of punctuation: `."}` may be two tokens where `.","` is
one. Whether the move helps depends on the punctuation at the end of the value; each ending is counted once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from string import punctuation
from typing import Any

from mcp_optimizer.compression.walk import Schema, rewrite, with_children

_LONGEST_RUN = 6
"""Punctuation further than this from the end of a value is ignored."""

_MOST_ENDINGS = 4_096

_QUOTE = '"'
_BEHIND_THE_WHOLE = ("}",)
_BEHIND_A_PART = (',"next"', '},"next"', "}}")


class Ordering:
    """Orders keywords by their cost in one vocabulary."""

    def __init__(self, cost: Callable[[str], int]) -> None:
        self._cost = cost
        self._weighed = lru_cache(maxsize=_MOST_ENDINGS)(self._weigh)

    def apply(self, schema: Schema) -> Schema:
        """The schema with each type where it costs least."""

        def inner(node: Schema) -> Schema:
            return self._ordered(node, is_whole=False)

        def below(child: Any) -> Any:
            return rewrite(child, inner, depth=1)

        return self._ordered(with_children(schema, below), is_whole=True)

    def _ordered(self, node: Schema, *, is_whole: bool) -> Schema:
        kind = node.get("type")
        if kind is None or (last := next(reversed(node))) == "type":
            return node
        if not self._weighed(_ending(node[last])[-_LONGEST_RUN:], isinstance(kind, str), is_whole):
            return node
        return {**{key: value for key, value in node.items() if key != "type"}, "type": kind}

    def _weigh(self, ending: str, is_one_type: bool, is_whole: bool) -> bool:
        """Whether a type costs less after a value with this ending than before it."""
        kind = '"type":"string"' if is_one_type else '"type":["string","null"]'
        value = f'"description":{_QUOTE if ending.endswith(_QUOTE) else ""}word{ending}'
        following = _BEHIND_THE_WHOLE if is_whole else _BEHIND_A_PART
        first = sum(self._cost(f'"name":{{{kind},{value}}}{after}') for after in following)
        last = sum(self._cost(f'"name":{{{value},{kind}}}{after}') for after in following)
        return last < first


@lru_cache(maxsize=8)
def ordering(cost: Callable[[str], int]) -> Ordering:
    """The ordering of a vocabulary, with its cache."""
    return Ordering(cost)


def _ending(value: Any) -> str:
    """The punctuation at the end of a value's JSON."""
    if isinstance(value, str):
        return f"{value[len(value.rstrip(punctuation)) :]}{_QUOTE}"
    if isinstance(value, dict):
        return f"{_ending(value[next(reversed(value))])}}}" if value else "{}"
    if isinstance(value, list):
        return f"{_ending(value[-1])}]" if value else "[]"
    return ""
