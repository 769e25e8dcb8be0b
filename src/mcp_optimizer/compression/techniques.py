"""The techniques that make a schema smaller, in the order in which they are tried, and the version of their results.

`compress` applies them; the catalog stores the results under `COMPRESSION`. A new technique is a pure function in
`lossless` (or a file of its own) and an entry in this file. `ordering` moves the type of a schema behind its other
keywords where that costs fewer tokens, because tokenizers merge runs of punctuation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from string import punctuation
from typing import Any

from mcp_optimizer.compression import lossless
from mcp_optimizer.compression.references import drop_unused_definitions
from mcp_optimizer.compression.walk import Schema, rewrite, with_children
from mcp_optimizer.largejson.compact_json import compact

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
        """The schema with each `type` at its cheapest position."""

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
    """The ordering for a vocabulary, with its cache."""
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


COMPRESSION = 7
"""Increase this when compression gives a different result for the same definition; stored forms are then discarded.

A test pins a digest of compressed samples to it, and fails if results change without an increase.
"""


@dataclass(frozen=True)
class Technique:
    """One way to make a schema smaller. A schema whose JSON contains none of the `signs` is left unchanged."""

    name: str
    apply: Callable[[Schema], Schema]
    signs: tuple[str, ...] = ("",)
    is_exact: bool = True
    """Whether the result accepts everything that the original accepts. It never accepts more."""
    is_for_all: bool = True
    """Whether clients with little JSON Schema support can read the result."""

    def concerns(self, text: str) -> bool:
        """Whether it may apply, judged from the compact JSON at almost no cost."""
        for sign in self.signs:  # noqa: SIM110 - a generator costs more than most of these searches
            if sign in text:
                return True
        return False


ENVELOPE = "envelope"
SHORTENING = "shortened texts"
INLINING = "inlined references"
SHARING = "shared definitions"
TIDYING = "tidy descriptions"
LIFTING = "lifted notes"
GROUPING = "groups"
ORDERING = "order of keywords"

_DESCRIBED = ('"description":"',)
# In compact JSON, a blank next to a quotation mark begins or ends a text; other whitespace is escaped or beyond ASCII.
_UNTIDY = ("\\", '" ', ' "', *(blank for blank in map(chr, range(0x80, 0x3001)) if blank.isspace()))
_IDLE = tuple(f'"{key}":{compact(value)}' for key, value in lossless.IDLE.items())
_ADMITTING_ALL = f'"additionalProperties":{compact(lossless.ADMITTING_ALL)}'

WORDING = (
    Technique("restating titles", lossless.drop_restating_titles, ('"title":',)),
    Technique("restating descriptions", lossless.drop_restating_descriptions, _DESCRIBED),
    Technique(TIDYING, lossless.tidy_descriptions, _UNTIDY),
)
"""Techniques that change only texts. No part of a schema moves, so a `$ref` into the middle of it still resolves."""

SHRINKING = (
    Technique("unknown keywords", lossless.drop_unknown_keywords),
    *WORDING,
    Technique("meaningless nulls", lossless.omit_nulls_that_mean_nothing, ('"default":null',), is_exact=False),
    Technique("unused definitions", drop_unused_definitions, ('"$defs":', '"definitions":')),
    Technique("single branches", lossless.merge_single_branches, ('"anyOf":', '"oneOf":', '"allOf":')),
    Technique("type lists", lossless.merge_type_branches, ('"anyOf":', '"oneOf":'), is_for_all=False),
    Technique("type beside enum", lossless.drop_type_beside_enum, ('"enum":', '"const":'), is_for_all=False),
    Technique("idle keywords", lossless.drop_idle_keywords, (*_IDLE, _ADMITTING_ALL)),
)
"""Techniques that only remove or merge, so shorter text means fewer tokens."""
