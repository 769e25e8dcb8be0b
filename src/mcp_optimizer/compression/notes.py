"""Finds the documentation of a tool and its parameters, and moves notes on parameters out of the description. Pure.

Some servers document parameters only in an `Args:` section of the description. Such notes are moved to the parameters
before a description is cut, because they would be lost otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.compression.lossless import joined, tidy
from mcp_optimizer.compression.sentences import sentences
from mcp_optimizer.compression.walk import Schema
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.deprecation import sentence as deprecation
from mcp_optimizer.search.words import terms, words

_SECTION = regex(r"^[ \t]*+\**+(?:args|arguments|parameters|params|inputs?)\**+[ \t]*+:?\**+[ \t]*+$", re.I | re.M)
_BLANKS = regex(r"[ \t]{2,}")
_NEXT_SECTION = regex(r"^[ \t]*\**(?:returns?|raises|yields|examples?|notes?|output|usage|see also)\**[ \t]*:", re.I)
_UNDERLINE = regex(r"^[ \t]*[-=~]{3,}[ \t]*$")
_NOTE = regex(
    r"^[ \t]*(?:[-*•][ \t]*)?[`*\"']*(\w[\w.\-]*)[`*\"']*[ \t]*(?:\(([^)]*)\)\**)?[ \t]*(?::\**|-|–|—)[ \t]+(.+)$"
)
_LOOSE = regex(
    r"^[ \t]*(?:[-*•][ \t]*)?[`*\"']*(\w[\w.\-]*)[`*\"']*[ \t]*(?:\(([^)]*)\)\**)?[ \t]*(?:\*(?:required|optional)\*)?"
    r"(?::\**|[ \t]+[-–—])[ \t]+(.+)$"
)
_TAG = regex(r"^[ \t]*(?::param(?:[ \t]+\w+)?[ \t]+(\w+):|@param[ \t]+(?:\{[^}]*\}[ \t]*)?(\w+)[ \t]*-?)[ \t]*(.*)$")

_TYPE_WORDS = frozenset(
    "any array bool boolean date dict float int integer list none null num number object of optional or required str "
    "string tuple union".split()
)

_LONGEST_SENTENCE = 240
_LOOKED_AT = 2_000
_LONGEST_RESTATEMENT = 120
_DIGIT = regex(r"\d")


@dataclass(frozen=True)
class Documentation:
    """A tool's description without its parameter notes, and those notes by parameter."""

    description: str
    notes: Mapping[str, str]


def lift_notes(description: str, parameters: frozenset[str]) -> Documentation:
    """Takes the notes on known parameters out of the description. A section with an unknown line stays."""
    text = tidy(description)
    lines = text.split("\n")
    notes: dict[str, str] = {}
    kept: list[str] = []
    number = 0
    while number < len(lines):
        found: dict[str, str] = {}
        end = number
        if _SECTION.match(lines[number]):
            found, end = _read_section(lines, number + 1, parameters)
        elif tag := _TAG.match(_BLANKS.sub(" ", lines[number])):
            found, end = _read_tag(lines, number, tag, parameters)
        # A second note on the same parameter stays where it is.
        if found and not found.keys() & notes.keys():
            notes |= found
            number = end
        else:
            kept.append(lines[number])
            number += 1
    return Documentation(tidy("\n".join(kept)), notes) if notes else Documentation(text, {})


def lift_loose(documentation: Documentation, parameters: frozenset[str]) -> Documentation:
    """Also moves lines that begin with a parameter's name, anywhere in the text: `- limit: How many (max 200)`.

    For signatures only: the lines may be part of a list whose other items stay.
    """
    notes = dict(documentation.notes)
    kept: list[str] = []
    current, indent = "", 0
    for line in documentation.description.split("\n"):
        note = _LOOSE.match(_BLANKS.sub(" ", line))
        if note and note.group(1) in parameters and note.group(1) not in notes:
            current, indent = note.group(1), _indent(line)
            notes[current] = _said(note, underlined=False)
        elif current and line.strip() and _indent(line) > indent:
            notes[current] = f"{notes[current]}\n{line.strip()}"
        else:
            current = ""
            kept.append(line)
    return Documentation(tidy("\n".join(kept)), notes)


def _read_tag(
    lines: list[str], start: int, tag: re.Match[str], parameters: frozenset[str]
) -> tuple[dict[str, str], int]:
    """The note of a `:param x:` or `@param x` line, with its indented continuation lines."""
    name = tag.group(1) or tag.group(2)
    end = start + 1
    while end < len(lines) and lines[end].strip() and _indent(lines[end]) > _indent(lines[start]):
        end += 1
    note = "\n".join([tag.group(3), *lines[start + 1 : end]])
    return ({name: tidy(note)}, end) if name in parameters and note.strip() else ({}, start)


def _read_section(lines: list[str], start: int, parameters: frozenset[str]) -> tuple[dict[str, str], int]:
    """The notes of an `Args:` section and its end; no notes if it contains anything else."""
    found: dict[str, str] = {}
    current = ""
    indent: int | None = None
    underlined = start < len(lines) and _UNDERLINE.match(lines[start]) is not None
    number = start + underlined
    while number < len(lines):
        line = lines[number]
        if not line.strip():
            following = next((later for later in lines[number:] if later.strip()), "")
            if not _NOTE.match(_BLANKS.sub(" ", following)) or _NEXT_SECTION.match(following):
                break
            number += 1
            continue
        depth = _indent(line)
        if _begins_section(lines, number) and (indent is None or depth <= indent):
            break
        note = _NOTE.match(_BLANKS.sub(" ", line))
        if note and note.group(1) in parameters and note.group(1) not in found and (indent is None or depth <= indent):
            current, indent = note.group(1), depth if indent is None else indent
            found[current] = _said(note, underlined)
        elif current and indent is not None and depth > indent:
            found[current] = f"{found[current]}\n{line.strip()}".strip()
        elif indent is not None and depth < indent:
            break
        else:
            return {}, start
        number += 1
    return {name: note for name, note in found.items() if note}, number


def _begins_section(lines: list[str], number: int) -> bool:
    if number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1]):
        return True
    return _NEXT_SECTION.match(lines[number]) is not None


def _said(note: re.Match[str], underlined: bool) -> str:
    """The text of a line about its parameter, without the type, which the schema states already."""
    text = str(note.group(3)).strip()
    if underlined and _is_type(text):
        # numpy style: the type is on this line, the text on the lines below.
        return ""
    beside = note.group(2)
    return text if beside is None or _is_type(beside) else f"({beside}) {text}"


def _is_type(text: str) -> bool:
    return all(word in _TYPE_WORDS for word in words(text))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def lift_into(description: str | None, schema: Schema) -> tuple[str, Schema] | None:
    """Moves parameter notes from the description into the parameters, so each is there once.

    None if there are no notes.
    """
    found = properties_of(schema)
    if not description or not found:
        return None
    describable = frozenset(name for name, child in found.items() if isinstance(child, dict))
    documentation = lift_notes(description, describable)
    if not documentation.notes:
        return None
    changed = {name: with_note(found[name], note) for name, note in documentation.notes.items()}
    return documentation.description, {**schema, "properties": {**found, **changed}}


def with_note(schema: Any, note: str) -> Any:
    """A parameter with a moved note: as its only note, in place of one that it contains, or after a different one."""
    if not isinstance(schema, dict):
        return schema
    own = schema.get("description")
    if not isinstance(own, str) or not own.strip():
        return {**schema, "description": note}
    return {**schema, "description": joined(own, note)}


def first_sentence(text: str) -> str:
    """The first sentence, in one line; cut at a word if it is very long."""
    # Later text cannot be shown, and might contain a hundred thousand abbreviations.
    text = tidy(text)[:_LOOKED_AT]
    text = next(sentences(text), text)
    sentence = " ".join(text.split()).rstrip(":").lstrip("#* ")
    if len(sentence) <= _LONGEST_SENTENCE:
        return sentence
    return sentence[: _LONGEST_SENTENCE - 1].rsplit(" ", 1)[0].rstrip(",;") + "…"


def opening(description: str) -> str:
    """The first sentence of a tool's description, and the sentence that deprecates the tool, if there is one."""
    first = first_sentence(description)
    warning = " ".join(deprecation(description).split())
    if not warning or warning.rstrip(".!") in " ".join(first.split()):
        return first
    return f"{first} {warning}"


def restates(note: str, name: str, context: str = "") -> bool:
    """Whether a note says nothing beyond the parameter's name and the tool's name."""
    if len(note) > _LONGEST_RESTATEMENT or _DIGIT.search(note):
        return False
    said = _FILLER.union(terms(name), terms(context))
    return said.issuperset(terms(note)) and len(words(note)) < 12


_FILLER = frozenset(
    terms("the id ids identifier name value string number integer boolean unique of for which optional required field")
)
