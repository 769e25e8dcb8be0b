"""The type of a schema moved behind its other keywords, where the vocabulary prices that lower. Pure but for counting.

The order of keywords means nothing, but punctuation is counted in runs: `."}` may be two tokens where `.","` is one.
Whether a type pays behind a value is told by the punctuation that the value ends in; it is counted once for each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from string import punctuation
from typing import Any

from mcp_optimizer.compression.walk import Schema, rewrite, with_children

_LONGEST_RUN = 6
"""Punctuation further from the end of a value than this is not looked at."""

_MOST_ENDINGS = 4_096

_QUOTE = '"'
_BEHIND_THE_WHOLE = ("}",)
_BEHIND_A_PART = (',"next"', '},"next"', "}}")


class Ordering:
    """Orders keywords as one vocabulary prices them."""

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
        """Whether a type costs less behind a value with this ending than in front of it."""
        kind = '"type":"string"' if is_one_type else '"type":["string","null"]'
        value = f'"description":{_QUOTE if ending.endswith(_QUOTE) else ""}word{ending}'
        following = _BEHIND_THE_WHOLE if is_whole else _BEHIND_A_PART
        first = sum(self._cost(f'"name":{{{kind},{value}}}{after}') for after in following)
        last = sum(self._cost(f'"name":{{{value},{kind}}}{after}') for after in following)
        return last < first


@lru_cache(maxsize=8)
def ordering(cost: Callable[[str], int]) -> Ordering:
    """The ordering of a vocabulary, with what it has learnt."""
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
