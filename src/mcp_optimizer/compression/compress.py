"""The techniques that make a schema smaller, in the order in which they are tried: applies those that make a given tool
smaller, and no others.

Pure except for counting. The output is an MCP tool whose schema accepts nothing that the original rejects.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from string import punctuation
from typing import Any

from mcp_optimizer.compression import lossless
from mcp_optimizer.compression.groups import NO_GROUPS, GroupPlan, candidate_groups, named_groups, regroup
from mcp_optimizer.compression.lossless import tidy
from mcp_optimizer.compression.notes import lift_into
from mcp_optimizer.compression.references import (
    drop_unused_definitions,
    inline_references,
    is_free_to_move,
    references,
    share_repeated,
)
from mcp_optimizer.compression.walk import Schema, rewrite, with_children
from mcp_optimizer.compression.wording import worded
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.largejson.compact_json import compact

# The techniques that make a schema smaller, in the order in which they are tried, and the version of their results.
# `compress` applies them; the catalog stores the results under `COMPRESSION`. A new technique is a pure function in
# `lossless` (or a file of its own) and an entry in this file. `ordering` moves the type of a schema behind its other
# keywords where that costs fewer tokens, because tokenizers merge runs of punctuation.

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


Cost = Callable[[str], int]
"""Counts the tokens of a text."""

_SURELY_MORE = 1.5
"""A text longer by this factor certainly costs more, so it is not counted."""


class SchemaNotes(StrEnum):
    """How much documentation a compressed schema keeps: all of it, or only what a caller needs (see `wording`)."""

    FULL = "full"
    RULES = "rules"


class Dialect(StrEnum):
    """The JSON Schema that a client can read. `plain`: references only in a tool whose server sent some. `inlined`: no
    references unless inlining makes the tool larger, a type next to every enum, and no lists of types. `references`:
    repeated parts of any tool are shared under `$defs`.
    """

    PLAIN = "plain"
    INLINED = "inlined"
    REFERENCES = "references"


@dataclass(frozen=True)
class Step:
    """The effect of one technique on a tool."""

    technique: str
    tokens: int


@dataclass(frozen=True)
class CompressedTool:
    """A smaller tool and how it was made; `steps` has the tokens after each technique that helped.

    `groups.expand` converts arguments in its shape to the original shape.
    """

    wire_json: str
    tokens: int
    baseline_tokens: int
    steps: tuple[Step, ...] = ()
    groups: GroupPlan = NO_GROUPS

    @property
    def tool(self) -> McpTool:
        return McpTool.model_validate(json.loads(self.wire_json))


def compress(
    tool: McpTool,
    cost: Cost,
    dialect: Dialect = Dialect.PLAIN,
    groups: Mapping[str, Sequence[str]] | None = None,
    *,
    notes: SchemaNotes = SchemaNotes.FULL,
    baseline: int | None = None,
    explained: bool = False,
) -> CompressedTool:
    """The smallest form of a tool that is still plain JSON Schema, with as much of its documentation as is wanted.

    `groups` come from the settings and are applied even if they do not help. `baseline` is the tool's cost, if known.
    Counting is most of the work, so steps are counted only if `explained`.
    """
    baseline = cost(tool.model_dump_json()) if baseline is None else baseline
    draft = _compressed(_started(tool, cost, notes, baseline if explained else None), dialect, groups or {})
    if draft.tokens <= baseline:
        return CompressedTool(draft.text, draft.tokens, baseline, tuple(draft.steps), draft.groups)
    if groups:
        return compress(tool, cost, dialect, notes=notes, baseline=baseline, explained=explained)
    if dialect is Dialect.INLINED:
        # References stay as the server sent them, and types stay for clients that need them.
        draft = _carefully(_started(tool, cost, notes, baseline if explained else None))
        if draft.tokens <= baseline:
            return CompressedTool(draft.text, draft.tokens, baseline, tuple(draft.steps))
    return CompressedTool(tool.model_dump_json(), baseline, baseline)


def _started(tool: McpTool, cost: Cost, notes: SchemaNotes, explained_from: int | None) -> _Draft:
    draft = _Draft(tool, cost, explained_from)
    if notes is SchemaNotes.RULES:
        draft.shrink(SHORTENING, *worded(tool.name, draft.description, draft.schema))
    return draft


class _Draft:
    """A tool during compression: name, description and schema, which is all that a model needs."""

    def __init__(self, tool: McpTool, cost: Cost, explained_from: int | None) -> None:
        self._tool = tool
        self.cost = cost
        self._explained_from = explained_from
        self._known: int | None = None
        self._head: str | None = None
        self._described: str | None = None
        self.description = tool.description
        self.schema = tool.input_schema
        self.text = self._written(self.description, self.schema)
        self.steps: list[Step] = []
        self.groups = NO_GROUPS
        self._note(ENVELOPE)

    @property
    def tokens(self) -> int:
        if self._known is None:
            self._known = self.cost(self.text)
        return self._known

    def note_groups(self, groups: GroupPlan) -> None:
        """Records how the parameters are grouped."""
        self.groups = groups

    def copy(self) -> _Draft:
        other = _Draft(self._tool, self.cost, self._explained_from)
        other.description, other.schema, other.text = self.description, self.schema, self.text
        other.steps = [*self.steps]
        return other

    def shrink(self, technique: str, description: str | None, schema: Schema) -> None:
        """Applies a technique that only removes; the result is smaller without counting."""
        if schema is self.schema and description is self.description:
            return
        text = self._written(description, schema)
        if len(text) < len(self.text):
            self._take(technique, description, schema, text)

    def offer(self, technique: str, *candidates: tuple[str | None, Schema]) -> bool:
        """Takes the smallest candidate if it costs less than the current draft; returns whether it did."""
        weighed = []
        for description, schema in candidates:
            text = self._written(description, schema)
            # Compared as text, because the order of keys matters.
            if text != self.text and len(text) < _SURELY_MORE * len(self.text):
                weighed.append((self.cost(text), description, schema, text))
        if not weighed:
            return False
        tokens, description, schema, text = min(weighed, key=itemgetter(0))
        if tokens >= self.tokens:
            return False
        self._take(technique, description, schema, text, tokens)
        return True

    def take(self, technique: str, schema: Schema) -> None:
        """Takes a schema, whatever it costs."""
        if schema is not self.schema:
            self._take(technique, self.description, schema, self._written(self.description, schema))

    def _take(
        self, technique: str, description: str | None, schema: Schema, text: str, tokens: int | None = None
    ) -> None:
        self.description, self.schema, self.text, self._known = description, schema, text, tokens
        self._note(technique)

    def _note(self, technique: str) -> None:
        if self._explained_from is None:
            return
        before = self.steps[-1].tokens if self.steps else self._explained_from
        if self.tokens != before:
            self.steps.append(Step(technique, self.tokens))

    def _written(self, description: str | None, schema: Schema) -> str:
        """The same text as the tool's `model_dump_json`."""
        if self._head is None or description is not self._described:
            said = "" if description is None else f',"description":{compact(description)}'
            self._head, self._described = f'{{"name":{compact(self._tool.name)}{said},"inputSchema":', description
        return f"{self._head}{compact(schema)}}}"


def _compressed(draft: _Draft, dialect: Dialect, wanted: Mapping[str, Sequence[str]]) -> _Draft:
    schema = draft.schema
    if is_free_to_move(schema):
        return _freely(draft, dialect, wanted)
    # A reference into the middle of a schema fixes the position of every part; inlined, it fixes none.
    inlined = inline_references(schema)
    other = draft.copy()
    careful = _carefully(draft)
    if not is_free_to_move(inlined):
        return careful
    other.take(INLINING, _typed(inlined))
    return min(careful, _freely(other, dialect, wanted), key=lambda one: one.tokens)


def _freely(draft: _Draft, dialect: Dialect, wanted: Mapping[str, Sequence[str]]) -> _Draft:
    """Applies every technique."""
    _leave_out(draft, shrinking(dialect))
    _settle_references(draft, dialect)
    draft.take(ORDERING, ordering(draft.cost).apply(draft.schema))
    _group(draft, wanted, dialect)
    return draft


def shrinking(dialect: Dialect) -> tuple[Technique, ...]:
    """The techniques that a dialect allows."""
    if dialect is not Dialect.INLINED:
        return SHRINKING
    return tuple(technique for technique in SHRINKING if technique.is_for_all)


def _carefully(draft: _Draft) -> _Draft:
    """Applies only techniques that are safe in a schema whose parts must stay in place."""
    _leave_out(draft, WORDING)
    draft.take(ORDERING, ordering(draft.cost).apply(draft.schema))
    return draft


def _leave_out(draft: _Draft, techniques: Sequence[Technique]) -> None:
    if draft.description:
        draft.shrink(TIDYING, tidy(draft.description), draft.schema)
    for technique in techniques:
        if technique.concerns(draft.text):
            draft.shrink(technique.name, draft.description, _typed(technique.apply(draft.schema)))
    if (lifted := lift_into(draft.description, draft.schema)) is not None:
        draft.offer(LIFTING, lifted)


def without_envelope(tool: McpTool) -> McpTool:
    """The parts that a model needs to call the tool: no output schema, annotations, icons, titles or `_meta`."""
    return McpTool(name=tool.name, description=tool.description, inputSchema=tool.input_schema)


def _group(draft: _Draft, wanted: Mapping[str, Sequence[str]], dialect: Dialect) -> None:
    """Applies the groups from the settings, or each group that saves tokens."""
    schema = draft.schema
    if wanted and (named := named_groups(schema, wanted)):
        draft.take(GROUPING, regroup(schema, named))
        draft.note_groups(named)
        return
    alike = dialect is not Dialect.INLINED
    for group in candidate_groups(schema).groups:
        grouped = regroup(draft.schema, GroupPlan((group,)), alike=alike)
        if draft.offer(GROUPING, (draft.description, grouped)):
            draft.note_groups(GroupPlan((*draft.groups.groups, group)))


def _settle_references(draft: _Draft, dialect: Dialect) -> None:
    """Inlines references: all of them for `INLINED`; otherwise all, or only those used once, where that costs less."""
    schema = draft.schema
    spread = [schema]
    counted = Counter(references(schema)) if '"$ref"' in draft.text else Counter[str]()
    if counted:
        often = {reference for reference, count in counted.items() if count > 1}
        whole = _typed(_shrunk(inline_references(schema), dialect))
        spread.append(whole)
        if dialect is Dialect.INLINED:
            draft.take(INLINING, whole)
        else:
            partly = _typed(_shrunk(inline_references(schema, keep=often), dialect))
            draft.offer(INLINING, (draft.description, whole), (draft.description, partly))
            spread[0] = draft.schema
    # A client that can read the tool as its server sent it can also read its references.
    if dialect is Dialect.REFERENCES or (counted and dialect is Dialect.PLAIN):
        shared = [(draft.description, share_repeated(one, draft.cost)) for one in spread]
        draft.offer(SHARING, *shared)


def _shrunk(schema: Schema, dialect: Dialect) -> Schema:
    """The schema shrunk once more, because inlined parts may now merge with their surroundings."""
    for technique in shrinking(dialect):
        schema = technique.apply(schema)
    return schema


def _typed(schema: Schema) -> Schema:
    # The protocol requires every input schema to say that it is an object.
    return schema if "type" in schema else {"type": "object", **schema}
