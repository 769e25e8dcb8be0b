"""The techniques that make a schema smaller, in the order they are tried, and the version of their results.

`compress` applies them; the catalog stores the results under `COMPRESSION`. A new technique is a pure function in
`lossless` (or a file of its own) and a line in `SHRINKING`. Knows nothing of tools, tokens or clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mcp_optimizer.compression import lossless
from mcp_optimizer.compression.references import drop_unused_definitions
from mcp_optimizer.compression.walk import Schema
from mcp_optimizer.largejson.text import compact

COMPRESSION = 7
"""Increase this when compression gives a different result for the same definition; stored forms are then discarded.

A test pins a digest of compressed samples to it, and fails if a result changed and this did not.
"""


@dataclass(frozen=True)
class Technique:
    """One way to make a schema smaller. A schema whose JSON contains none of the `signs` stays as it is."""

    name: str
    apply: Callable[[Schema], Schema]
    signs: tuple[str, ...] = ("",)
    is_exact: bool = True
    """Whether the result admits everything that the original admits. It never admits more."""
    is_for_all: bool = True
    """Whether clients with little JSON Schema support can read the result."""

    def concerns(self, text: str) -> bool:
        """Whether it may apply, judged from the compact JSON, which costs next to nothing."""
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
"""These change only words. No part of a schema moves, so a `$ref` into the middle of it still resolves."""

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
"""These only remove or merge, so shorter text means fewer tokens."""
