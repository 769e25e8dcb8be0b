"""Makes the forms in which a tool's definition is sent: signature, compressed schema, or as its server wrote it.

Each form of a definition is made and counted once and then cached. If a form would be larger than the original, the
original is sent instead. Called by the gateway; pure except for that cache.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.compression.brief import abbreviated
from mcp_optimizer.compression.compress import (
    COMPRESSION,
    CompressedTool,
    Dialect,
    SchemaNotes,
    Step,
    compress,
    without_envelope,
)
from mcp_optimizer.compression.groups import Group, GroupPlan
from mcp_optimizer.compression.signature import Notes, fair_share, say_once, signature
from mcp_optimizer.domain.hidden_text import HIDDEN_TEXT
from mcp_optimizer.domain.json_schema import ANY_OBJECT
from mcp_optimizer.domain.tools import DefinitionForm, McpTool
from mcp_optimizer.token_counter import TokenCounter

_WITH_NOTES = 3
"""Number of tools in a reply whose parameters get notes, not only names and types."""

_MOST_REMEMBERED = 20_000
_LARGEST = 100_000
"""Maximum characters of a definition that is compressed or written as a signature: a larger one fits no reply."""

_LEAST_SHARE = 300
"""Minimum tokens per tool of a reply that is too small for its tools."""

_K = TypeVar("_K")
_V = TypeVar("_V")


class Detail(StrEnum):
    """How much of a definition a reply contains."""

    SIGNATURE = "signature"
    PYTHON = "python"  # as scripts call it; written by the gateway, treated as a signature in this module
    SCHEMA = "schema"
    FULL = "full"


_SIGNATURES = (Detail.SIGNATURE, Detail.PYTHON)
_DIALECTS = tuple(Dialect)


@dataclass(frozen=True)
class Form:
    """A definition as sent, and its cost."""

    definition: McpTool
    tokens: int
    is_abbreviated: bool = False
    """Whether parts were left out; the form marks each omission."""

    @property
    def cost(self) -> int:
        """Tokens; if they could not be counted, the maximum possible."""
        return self.tokens or len(self.definition.model_dump_json().encode("utf-8", "surrogatepass"))

    def text(self, detail: Detail) -> str:
        """The form for a person to read: the signature, or the definition as JSON if it has none."""
        is_signature = detail in _SIGNATURES and self.definition.input_schema == ANY_OBJECT
        return (self.definition.description or "") if is_signature else self.definition.model_dump_json(indent=2)


@dataclass(frozen=True)
class _Kept:
    """A compressed definition, as JSON because parsed it would take ten times the memory, and few are read."""

    wire_json: str
    tokens: int
    groups: GroupPlan


Groups = Mapping[str, Mapping[str, Sequence[str]]]
"""The parameter groups from the settings, by tool."""


class ToolForms:
    """Makes and caches the forms of definitions."""

    def __init__(
        self,
        counter: TokenCounter,
        notes: Notes = Notes.SENTENCE,
        dialect: Dialect = Dialect.PLAIN,
        groups: Groups | None = None,
        schema_notes: SchemaNotes = SchemaNotes.RULES,
    ) -> None:
        self._counter = counter
        self._notes = notes
        self.dialect = dialect
        self._groups = groups or {}
        self._schema_notes = schema_notes
        self._texts: OrderedDict[tuple[str, Notes], str] = OrderedDict()
        self._signatures: OrderedDict[tuple[str, str, Notes], Form] = OrderedDict()
        self._compressed: OrderedDict[tuple[str, Dialect], _Kept] = OrderedDict()
        self._new: dict[tuple[str, Dialect], None] = {}

    def form(self, tool: CatalogTool, detail: Detail, notes: Notes | None = None) -> Form:
        """The definition in the given detail, or unchanged if that is no larger."""
        if tool.record.skill is not None:
            return self._of_skill(tool)
        original = Form(tool.definition, self._tokens(tool))
        # A count of 0 cannot be compared: a definition that the tokenizer failed on is sent as its server wrote it.
        if detail is Detail.FULL or not tool.tokens:
            return original
        made = self.schema(tool) if detail is Detail.SCHEMA else self._signature(tool, notes or self._notes)
        return made if made.tokens < tool.tokens else original

    def _of_skill(self, tool: CatalogTool) -> Form:
        """A skill as programs read it: as a tool, with what reading it costs."""
        described = tool.definition
        text = f"{skill_note(tool).capitalize()}. {described.description or ''}"
        definition = described.model_copy(update={"description": text})
        return Form(definition, self._count(definition))

    def text(self, tool: CatalogTool, notes: Notes) -> str:
        """The signature as text, for a reader that gets it without JSON around it."""
        key = (tool.record.definition_hash, notes)
        if (known := self._texts.get(key)) is None:
            details = abbreviated(tool.record.details, _LARGEST) if _is_large(tool) else tool.record.details
            known = signature(details, notes)
            _remember(self._texts, key, known)
        return known

    def reply(self, tools: Sequence[CatalogTool], detail: Detail, most: int | None = None) -> list[Form]:
        """The forms of tools returned together, best first; shared parts are written once.

        Only the best tools get notes in their signatures; the others can still be called by names and types. If the
        forms exceed `most` tokens, the largest are abbreviated first; if there are too many, the last are dropped.
        """
        most = sys.maxsize if most is None else most
        least, total = max(1, most // _LEAST_SHARE), 0
        forms: list[Form] = []
        for place, tool in enumerate(tools):
            if total > most and place >= least:
                break
            forms.append(self.form(tool, detail, self._notes_at(place)))
            total += forms[-1].cost
        if detail in _SIGNATURES and total <= 2 * most:
            together = self._said_once(forms)
            total = sum(form.cost for form in together)
            if total <= most:
                return together
        if total <= most:
            return forms
        share = fair_share([form.cost for form in forms[:least]], most)
        return [
            form if form.cost <= share else self._abbreviated(tool, detail, self._notes_at(place), share)
            for place, (tool, form) in enumerate(zip(tools, forms[:least], strict=False))
        ]

    def _notes_at(self, place: int) -> Notes:
        """How many notes a tool at this position of a reply gets."""
        return Notes.NONE if self._notes is Notes.SENTENCE and place >= _WITH_NOTES else self._notes

    def _abbreviated(self, tool: CatalogTool, detail: Detail, notes: Notes, most: int) -> Form:
        """A form with as much of the definition as fits `most` tokens."""
        size = 4 * most
        while size >= _LEAST_SHARE:
            short = abbreviated(tool.definition, size)
            if detail in _SIGNATURES:
                short = McpTool(name=tool.name, description=signature(short, notes), inputSchema=ANY_OBJECT)
            elif detail is Detail.SCHEMA:
                short = without_envelope(short)
            form = Form(short, self._count(short), is_abbreviated=True)
            if form.cost <= most:
                return form
            size //= 2
        bare = McpTool(name=tool.name, description="… not shown: too large.", inputSchema=ANY_OBJECT)
        return Form(bare, self._count(bare), is_abbreviated=True)

    def _tokens(self, tool: CatalogTool) -> int:
        """The tokens of a definition sent whole: fewer than the server's if hidden characters are removed from it."""
        return self._count(tool.definition) if tool.record.definition.has_hidden_text else tool.tokens

    def _count(self, definition: McpTool) -> int:
        # The tokenizer fails on some texts, and such a tool must be found too.
        return self._counter.count_or_zero(definition.model_dump_json())

    def _said_once(self, forms: list[Form]) -> list[Form]:
        forms = list(forms)
        # A definition sent as its server wrote it has no signature.
        written = [at for at, form in enumerate(forms) if form.definition.input_schema == ANY_OBJECT]
        texts = say_once([forms[at].definition.description or "" for at in written])
        for at, text in zip(written, texts, strict=True):
            if text != forms[at].definition.description:
                shorter = forms[at].definition.model_copy(update={"description": text})
                forms[at] = Form(shorter, self._counter.count_tool_tokens(shorter), forms[at].is_abbreviated)
        return forms

    def schema(self, tool: CatalogTool, dialect: Dialect | None = None) -> Form:
        """The definition with its schema compressed, under the tool's public name."""
        kept = self._keep(tool, dialect or self.dialect)
        definition = McpTool.model_validate_json(kept.wire_json)
        if tool.name == definition.name:
            return Form(definition, kept.tokens)
        renamed = definition.model_copy(update={"name": tool.name})
        return Form(renamed, self._counter.count_tool_tokens(renamed))

    def listing(self, tool: CatalogTool, dialect: Dialect) -> dict[str, Any]:
        """The same as `schema`, as an entry of a tool list."""
        return {**json.loads(self._keep(tool, dialect).wire_json), "name": tool.name}

    def prepare(self, tools: Iterable[CatalogTool], dialect: Dialect) -> None:
        """Compress definitions ahead of time."""
        for tool in tools:
            self._keep(tool, dialect)

    def is_at_hand(self, tool: CatalogTool) -> bool:
        """Whether `plans` knows the tool, or can compress it without loading the tokenizer, which takes long."""
        return self._counter.loaded is not None or (tool.record.definition_hash, self.dialect) in self._compressed

    def plans(self, tool: CatalogTool) -> list[GroupPlan]:
        """How to expand arguments of the compressed schema, in every dialect in which it was sent."""
        plans, digest = [self._keep(tool, self.dialect).groups], tool.record.definition_hash
        for dialect in _DIALECTS:
            kept = self._compressed.get((digest, dialect))
            if kept is not None and kept.groups not in plans:
                plans.append(kept.groups)
        return plans

    def steps(self, tool: CatalogTool) -> tuple[Step, ...]:
        """The effect of each compression technique on a tool."""
        return self._compress(tool, self.dialect, explained=True).steps

    def unknown(self, tools: Iterable[CatalogTool], dialect: Dialect | None = None) -> list[str]:
        """The definitions, by hash, that are not compressed yet."""
        wanted = dialect or self.dialect
        hashes = (tool.record.definition_hash for tool in tools)
        return [found for found in dict.fromkeys(hashes) if (found, wanted) not in self._compressed]

    def kind(self, dialect: Dialect | None = None) -> str:
        """The name under which compressed definitions are stored; includes everything they depend on."""
        groups = hashlib.sha256(json.dumps(self._groups, sort_keys=True).encode()).hexdigest()[:12]
        version = f"{COMPRESSION}.{HIDDEN_TEXT}"
        return f"{version}/{dialect or self.dialect}/{self._schema_notes}/{self._counter.encoding_name}/{groups}"

    def learn(self, stored: Iterable[DefinitionForm], dialect: Dialect | None = None) -> None:
        """Add compressed definitions that were made before."""
        for one in stored:
            plan = GroupPlan(tuple(Group(name, members) for name, members in json.loads(one.groups)))
            _remember(
                self._compressed,
                (one.definition_hash, dialect or self.dialect),
                _Kept(one.definition, one.token_count, plan),
            )

    def has_new(self, dialect: Dialect) -> bool:
        """Whether some compressed definitions are not stored yet."""
        return any(made == dialect for _, made in list(self._new))

    def take_new(self, dialect: Dialect | None = None) -> list[DefinitionForm]:
        """The compressed definitions made since the last call, to be stored."""
        wanted = dialect or self.dialect
        made = [key for key in list(self._new) if key[1] == wanted]
        found = []
        for key in made:
            self._new.pop(key, None)
            if (kept := self._compressed.get(key)) is not None:
                groups = json.dumps([(group.name, dict(group.members)) for group in kept.groups.groups])
                found.append(DefinitionForm(key[0], kept.wire_json, kept.tokens, groups))
        return found

    def _keep(self, tool: CatalogTool, dialect: Dialect) -> _Kept:
        key = (tool.record.definition_hash, dialect)
        if (known := self._compressed.get(key)) is None:
            made = self._compress(tool, dialect)
            known = _Kept(made.wire_json, made.tokens, made.groups)
            _remember(self._compressed, key, known)
            if made.tokens:
                self._new[key] = None
                if len(self._new) > _MOST_REMEMBERED:
                    # Without a store, `take_new` is never called.
                    self._new.pop(next(iter(self._new)), None)
        return known

    def _compress(self, tool: CatalogTool, dialect: Dialect, *, explained: bool = False) -> CompressedTool:
        definition, baseline = tool.record.definition, tool.record.token_count
        if not baseline or _is_large(tool):
            return CompressedTool(definition.readable_json, tokens=baseline, baseline_tokens=baseline)
        details = definition.parsed()
        wanted = self._groups.get(details.name, {})
        count, notes = self._counter.count_tokens, self._schema_notes
        return compress(details, count, dialect, wanted, notes=notes, baseline=baseline, explained=explained)

    def _signature(self, tool: CatalogTool, notes: Notes) -> Form:
        key = (tool.record.definition_hash, tool.name, notes)
        if (known := self._signatures.get(key)) is None:
            definition = McpTool(name=tool.name, description=self.text(tool, notes), inputSchema=ANY_OBJECT)
            known = Form(definition, self._counter.count_tool_tokens(definition), _is_large(tool))
            _remember(self._signatures, key, known)
        return known


def skill_note(tool: CatalogTool) -> str:
    """What a reader should know of a skill before reading it; empty for a tool. The cost is known from its size, as
    its server announced it: nothing is read ahead of need.
    """
    if (skill := tool.record.skill) is None:
        return ""
    cost = f"about {skill.tokens_to_read:,} tokens" if skill.tokens_to_read else "an unknown number of tokens"
    return f"a skill: calling it reads its instructions, {cost}"


def _is_large(tool: CatalogTool) -> bool:
    return tool.record.skill is None and len(tool.record.definition.wire_json) > _LARGEST


def _remember(memory: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    memory[key] = value
    if len(memory) > _MOST_REMEMBERED:
        memory.popitem(last=False)
