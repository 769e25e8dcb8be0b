"""Composes the techniques by what they gain on this very tool: one that does not make it smaller is not applied.

Pure but for counting. The output is an MCP tool whose schema admits nothing that the original does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Any

import pydantic_core

from mcp_optimizer.compression import lossless
from mcp_optimizer.compression.groups import NO_GROUPS, GroupPlan, candidate_groups, named_groups, regroup
from mcp_optimizer.compression.lossless import Technique, tidy
from mcp_optimizer.compression.notes import lift_notes, with_note
from mcp_optimizer.compression.references import (
    drop_unused_definitions,
    inline_references,
    is_free_to_move,
    references,
    share_repeated,
)
from mcp_optimizer.compression.walk import Schema
from mcp_optimizer.db.models import McpTool

Cost = Callable[[str], int]
"""Tokens of a text."""


class Dialect(StrEnum):
    """What a client can read. `plain`: no references but the tool's own, where inlining them would cost more;
    `inlined`: none that can be avoided, while the tool stays no larger than it was; `references`: repeated parts
    shared under `$defs`."""

    PLAIN = "plain"
    INLINED = "inlined"
    REFERENCES = "references"


ENVELOPE = "envelope"
INLINING = "inlined references"
SHARING = "shared definitions"
TIDYING = "tidy descriptions"
LIFTING = "lifted notes"
GROUPING = "groups"

WORDING = (
    Technique("restating titles", lossless.drop_restating_titles),
    Technique("restating descriptions", lossless.drop_restating_descriptions),
    Technique(TIDYING, lossless.tidy_descriptions),
)
"""These touch only words, so that they are safe in any schema."""

SHRINKING = (
    Technique("unknown keywords", lossless.drop_unknown_keywords),
    *WORDING,
    Technique("meaningless nulls", lossless.omit_nulls_that_mean_nothing),
    Technique("unused definitions", drop_unused_definitions),
    Technique("single branches", lossless.merge_single_branches),
    Technique("type lists", lossless.merge_type_branches),
    Technique("type beside enum", lossless.drop_type_beside_enum),
    Technique("idle keywords", lossless.drop_idle_keywords),
)
ORDERING = Technique("order of keywords", lossless.order_keywords)


@dataclass(frozen=True)
class Step:
    """What one technique did to a tool."""

    technique: str
    tokens: int


@dataclass(frozen=True)
class CompressedTool:
    """A smaller tool, and how it came about; `steps` are the tokens after each technique that paid.

    `groups` is how arguments in its shape become those of the original: `groups.expand`.
    """

    tool: McpTool
    tokens: int
    baseline_tokens: int
    steps: tuple[Step, ...] = ()
    groups: GroupPlan = NO_GROUPS


def compress(
    tool: McpTool,
    cost: Cost,
    dialect: Dialect = Dialect.PLAIN,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> CompressedTool:
    """The smallest form of a tool that is still plain JSON Schema with all of its documentation.

    `groups` are those that the user wants, whether they pay or not.
    """
    schema = tool.input_schema
    if is_free_to_move(schema):
        draft = _freely(_Draft(tool, cost), dialect, groups or {})
    else:
        draft = _carefully(_Draft(tool, cost))
        # A reference to the middle of a schema ties every part to its place; written out, it ties none.
        inlined = inline_references(schema)
        if is_free_to_move(inlined):
            other = _Draft(tool, cost)
            other.take(INLINING, _with_schema(tool, inlined))
            draft = min(draft, _freely(other, dialect, groups or {}), key=lambda one: one.tokens)
    if draft.tokens <= draft.baseline:
        return CompressedTool(draft.tool, draft.tokens, draft.baseline, tuple(draft.steps), draft.groups)
    if groups:
        return compress(tool, cost, dialect)
    return compress(tool, cost) if dialect is Dialect.INLINED else CompressedTool(tool, draft.baseline, draft.baseline)


class _Draft:
    """A tool on its way to its smallest form: what is offered is taken only if it is smaller."""

    def __init__(self, tool: McpTool, cost: Cost) -> None:
        self.tool = tool
        self.cost = cost
        self._text = tool.model_dump_json()
        self.baseline = self.tokens = cost(self._text)
        self.steps: list[Step] = []
        self.groups = NO_GROUPS

    def offer(self, technique: str, *candidates: McpTool) -> bool:
        """Take the smallest, if it is smaller than what is there; whether it was."""
        # Compared as text: the order of keys makes a difference here.
        texts = [(candidate, candidate.model_dump_json()) for candidate in candidates]
        weighed = [(self.cost(text), tool, text) for tool, text in texts if text != self._text]
        tokens, tool, text = min(weighed, key=itemgetter(0), default=(self.tokens, self.tool, self._text))
        if tokens >= self.tokens:
            return False
        self._take(technique, tool, text, tokens)
        return True

    def offer_schema(self, technique: Technique) -> None:
        self.offer(technique.name, _with_schema(self.tool, technique.apply(self.tool.input_schema)))

    def take(self, technique: str, candidate: McpTool) -> None:
        """Take it, whatever it costs."""
        text = candidate.model_dump_json()
        self._take(technique, candidate, text, self.cost(text))

    def _take(self, technique: str, tool: McpTool, text: str, tokens: int) -> None:
        self.tool, self._text, self.tokens = tool, text, tokens
        self.steps.append(Step(technique, tokens))


def _freely(draft: _Draft, dialect: Dialect, wanted: Mapping[str, Sequence[str]]) -> _Draft:
    """Every technique."""
    _unwrap(draft)
    for technique in SHRINKING:
        draft.offer_schema(technique)
    draft.offer(LIFTING, with_lifted_notes(draft.tool))
    _settle_references(draft, dialect)
    draft.offer_schema(ORDERING)
    _group(draft, wanted)
    return draft


def _carefully(draft: _Draft) -> _Draft:
    """Only what is safe in a schema whose parts are bound to their places."""
    _unwrap(draft)
    for technique in (*WORDING, ORDERING):
        draft.offer_schema(technique)
    draft.offer(LIFTING, with_lifted_notes(draft.tool))
    return draft


def _unwrap(draft: _Draft) -> None:
    draft.offer(ENVELOPE, without_envelope(draft.tool))
    if draft.tool.description:
        draft.offer(TIDYING, draft.tool.model_copy(update={"description": tidy(draft.tool.description)}))


def without_envelope(tool: McpTool) -> McpTool:
    """Only what a model needs to call the tool: no output schema, annotations, icons, titles or `_meta`."""
    return McpTool(name=tool.name, description=tool.description, inputSchema=tool.input_schema)


def with_lifted_notes(tool: McpTool) -> McpTool:
    """Parameter notes out of the description and into the parameters: what stood in both places stands in one."""
    found = tool.input_schema.get("properties")
    properties = found if isinstance(found, dict) else {}
    describable = frozenset(name for name, schema in properties.items() if isinstance(schema, dict))
    documentation = lift_notes(tool.description or "", describable)
    if not documentation.notes:
        return tool
    changed = {
        name: with_note(schema, documentation.notes[name]) if name in documentation.notes else schema
        for name, schema in properties.items()
    }
    return _with_schema(
        tool.model_copy(update={"description": documentation.description}),
        {**tool.input_schema, "properties": changed},
    )


def _group(draft: _Draft, wanted: Mapping[str, Sequence[str]]) -> None:
    schema = draft.tool.input_schema
    if named := named_groups(schema, wanted):
        draft.take(GROUPING, _with_schema(draft.tool, regroup(schema, named)))
        draft.groups = named
    elif plan := candidate_groups(schema):
        grouped = _with_schema(draft.tool, regroup(schema, plan))
        draft.groups = plan if draft.offer(GROUPING, grouped) else NO_GROUPS


def _settle_references(draft: _Draft, dialect: Dialect) -> None:
    """Written out or not, whichever is smaller; what is used once always is."""
    schema = draft.tool.input_schema
    candidates: list[McpTool] = []
    if counted := Counter(references(schema)):
        often = {reference for reference, count in counted.items() if count > 1}
        whole = _with_schema(draft.tool, _shrink(inline_references(schema)))
        candidates = [whole]
        partly = _with_schema(draft.tool, _shrink(inline_references(schema, keep=often)))
        if dialect is Dialect.INLINED:
            draft.take(INLINING, whole)
        else:
            draft.offer(INLINING, whole, partly)
    if dialect is Dialect.REFERENCES:
        spread = (draft.tool, *candidates)
        draft.offer(SHARING, *(_with_schema(tool, share_repeated(tool.input_schema, draft.cost)) for tool in spread))


def _shrink(schema: Schema) -> Schema:
    """What is inlined may now be merged with where it stands."""
    for technique in SHRINKING:
        schema = technique.apply(schema)
    return schema


def _with_schema(tool: McpTool, schema: Schema) -> McpTool:
    # The protocol wants every input schema to say that it is an object.
    return tool.model_copy(update={"input_schema": {"type": "object", **schema}})


def compact(value: Any) -> str:
    """JSON as it is sent: no blanks."""
    return pydantic_core.to_json(value).decode("utf-8")
