"""Shortens the texts of a tool to what a caller needs; nothing that validates changes. Pure.

A description keeps its first sentence and its rules, and so does a parameter's note, as in signatures; facts that the
schema declares are not repeated, text that several notes share appears once, and an example stays only where it alone
shows a form. Called by `compress`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from mcp_optimizer.compression.lossless import tidy
from mcp_optimizer.compression.notes import lift_into
from mcp_optimizer.compression.rules import NoteContext, RulesWrittenOnce, described, noted
from mcp_optimizer.compression.sentences import ended
from mcp_optimizer.compression.value_spelling import literal
from mcp_optimizer.compression.walk import DEEPEST, Schema, with_children
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.runtime.patterns import regex

_EXAMPLES = ("examples", "example")
_LIMITS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_MOST_VALUES = 200
_SHORT = 40
"""Maximum characters of an example that is kept."""

_SHOWS_A_FORM = regex(r"(?=\S*[\d/:@_.-])\S+")
_HAS_EXAMPLE = regex(r"\be\.g\.|[\"'`(]|\d|\bsuch as\b", re.I)
_DATE_FORM = regex(
    r",? (?:in |as )?(?:an? |the )?ISO[ -]?8601(?: (?:date|format)){0,2}(?: ?\(YYYY-MM-DD\))?|,? ?\(YYYY-MM-DD\)", re.I
)
_DATES = frozenset({"date", "date-time"})

_FEWEST = 5
"""Notes that must share a beginning before it is written only once."""

_MARK = "…"
_PROPERTIES = frozenset({"properties"})


class _Place(NamedTuple):
    """The place of a text: the name of its parameter ("" if it has none), and whether an object is around it."""

    name: str
    is_nested: bool


def worded(name: str, description: str | None, schema: Schema) -> tuple[str | None, Schema]:
    """A tool's description and schema with their texts shortened."""
    told, schema = lift_into(description, schema) or (description, schema)
    setting = NoteContext(name, len(properties_of(schema)))
    shorter = _with_notes(schema, partial(_short, setting=setting))
    shorter, lead = _lead_once(_formats_once(shorter))
    if told:
        notes = {name: str(_note(child) or "") for name, child in properties_of(schema).items()}
        told = described(tidy(told), notes)
    if lead:
        told = " ".join(filter(None, (ended(told or ""), f'"{_MARK}" means "{lead}".')))
    return told, shorter


def _note(schema: Any) -> str | None:
    text = schema.get("description") if isinstance(schema, dict) else None
    return text if isinstance(text, str) else None


def _with_notes(schema: Schema, change: Callable[[Schema, _Place], Schema]) -> Schema:
    """The schema with `change` applied to everything inside it, in the order of the text."""

    def inside(node: Schema, depth: int) -> Schema:
        properties = properties_of(node)
        done = {
            name: below(change(child, _Place(name, depth > 0)), depth) if isinstance(child, dict) else child
            for name, child in properties.items()
        }
        node = {**node, "properties": done} if properties else node

        def other(child: Any) -> Any:
            return below(change(child, _Place("", is_nested=True)), depth) if isinstance(child, dict) else child

        return with_children(node, other, outside=_PROPERTIES)

    def below(node: Schema, depth: int) -> Schema:
        return inside(node, depth + 1) if depth < DEEPEST else node

    return inside(schema, 0)


def _short(node: Schema, place: _Place, *, setting: NoteContext) -> Schema:
    """A part of a schema with its note shortened, and without examples that show nothing new."""
    note = _note(node)
    text = ""
    if note is not None:
        where = NoteContext(setting.tool, setting.parameters, place.is_nested)
        said = noted(tidy(note), place.name, _shown(node, place.name), where)
        text = f"{ended(said.text)} Default: {said.default}".strip() if said.default else said.text
    kept = {key: value for key, value in node.items() if key not in _EXAMPLES and (key != "description" or text)}
    if text:
        kept["description"] = text
    if (example := _telling_example(node, text)) is not None:
        kept["examples"] = [example]
    return kept


def _shown(node: Schema, name: str) -> str:
    """The parameter's facts that the schema declares, written as in a signature."""
    values = node.get("enum")
    declared = list(map(literal, values[:_MOST_VALUES])) if isinstance(values, list) else []
    declared += [str(node[key]) for key in _LIMITS if isinstance(node.get(key), int | float)]
    default = node.get("default")
    beside = "" if default in (None, [], {}, "") else f" = {literal(default)}"
    return f"{name}: {'|'.join(declared) or node.get('type', 'any')}{beside}"


def _telling_example(node: Schema, text: str) -> Any:
    """The first example, if it is short and nothing else shows its form; else None."""
    given = node.get("examples")
    example = given[0] if isinstance(given, list) and given else node.get("example")
    if not isinstance(example, str) or len(example) > _SHORT or not _SHOWS_A_FORM.fullmatch(example):
        return None
    is_shown = not {"enum", "const", "format", "pattern"}.isdisjoint(node) or _HAS_EXAMPLE.search(text)
    return None if is_shown else example


def _formats_once(schema: Schema) -> Schema:
    """Explains the form of dates only at the first of them, and does not repeat long rules."""
    said, explained = RulesWrittenOnce(), False

    def change(node: Schema, _: _Place) -> Schema:
        nonlocal explained
        if (note := _note(node)) is None:
            return node
        text = note
        if node.get("format") in _DATES and _DATE_FORM.search(text):
            text, explained = (_DATE_FORM.sub("", text).strip(" ,") if explained else text), True
        text = said.note(text)
        return node if text == note else {**node, "description": text} if text else _without_note(node)

    return _with_notes(schema, change)


def _without_note(node: Schema) -> Schema:
    return {key: value for key, value in node.items() if key != "description"}


def _lead_once(schema: Schema) -> tuple[Schema, str]:
    """Removes the words with which most notes begin; returns them too, empty if few notes begin alike."""
    properties = properties_of(schema)
    lead = _common_lead(note for child in properties.values() if (note := _note(child)) is not None)
    if not lead:
        return schema, ""
    return {**schema, "properties": _without_lead(properties, f"{lead} ")}, lead


def _without_lead(properties: Mapping[str, Any], lead: str) -> dict[str, Any]:
    return {
        name: {**child, "description": f"{_MARK}{note.removeprefix(lead)}"}
        if (note := _note(child)) is not None and note.startswith(lead)
        else child
        for name, child in properties.items()
    }


def _common_lead(notes: Iterator[str]) -> str:
    """The shared beginning whose omission saves the most words."""
    counts: Counter[str] = Counter()
    for note in notes:
        words = note.split(" ", 4)
        counts.update(" ".join(words[:length]) for length in range(2, min(5, len(words))))
    if not counts:
        return ""
    lead = max(counts, key=lambda lead: ((counts[lead] - 1) * (lead.count(" ")), lead))
    return lead if counts[lead] >= _FEWEST and lead.replace(" ", "").isalnum() else ""
