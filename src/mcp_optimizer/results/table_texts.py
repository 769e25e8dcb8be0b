"""Reads texts that are data but no JSON: Python literals, CSV and Markdown tables. Pure.

Called where `select` would otherwise refuse a result. Reads a text whole or not at all: what only begins like data, or
has rows of different lengths, is text. No text is evaluated, and the time is linear in its length.
"""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Sequence
from typing import Any

from mcp_optimizer.largejson.compact_json import parsed
from mcp_optimizer.results.result_texts import NO_JSON
from mcp_optimizer.runtime.patterns import regex

_TOKEN = regex(
    r"""\s*(?:
        (?P<text>[rbu]?'(?:[^'\\\n]|\\.)*'|[rbu]?"(?:[^"\\\n]|\\.)*")
      | (?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
      | (?P<word>True|False|None)
      | (?P<sign>[\[\](){},:])
    )""",
    re.VERBOSE,
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_SIGNS = {"(": "[", ")": "]"}
_NUMBER = regex(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?")
_TITLE = regex(r"[\w$#%][\w .$#%()/&+-]{0,59}")
_RULE = regex(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?|\|\s*:?-+:?\s*\|")
_DELIMITERS = "\t,;"
_FEWEST_ROWS = 2
"""Rows below the titles from which lines with commas are a table: prose rarely has the same number in each line."""


def data_value(text: str) -> Any:
    """The value of a text that is data, or NO_JSON."""
    for read in (_literal, _markdown, _csv):
        if (value := read(text)) is not NO_JSON:
            return value
    return NO_JSON


def _literal(text: str) -> Any:
    """A list, tuple or dictionary as Python prints it."""
    if text.lstrip()[:1] not in ("[", "{", "("):
        return NO_JSON
    written: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            return NO_JSON
        at = token.end()
        written.append(_as_json(token))
        if written[-1] in ("]", "}") and len(written) > 1 and written[-2] == ",":
            # Python ends a tuple of one with a comma.
            del written[-2]
    try:
        return parsed(_with_text_keys(written))
    except ValueError:
        return NO_JSON


def _as_json(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "text":
            value = ast.literal_eval(token["text"]) if token["text"][0] != "b" else token["text"]
            return json.dumps(value)
        case "word":
            return _WORDS[token["word"]]
        case "number":
            number = token["number"]
            return f"{number}0" if number.endswith(".") else number
        case _:
            return _SIGNS.get(token["sign"], token["sign"])


def _with_text_keys(written: Sequence[str]) -> str:
    """JSON has only texts as keys."""
    keyed = list(written)
    for at in range(1, len(keyed)):
        if keyed[at] == ":" and not keyed[at - 1].startswith(('"', "]", "}")):
            keyed[at - 1] = json.dumps(keyed[at - 1])
    return "".join(keyed)


def _markdown(text: str) -> Any:
    """The only table of a text, with whatever stands around it."""
    lines = [line.strip() for line in text.splitlines()]
    rules = [at for at, line in enumerate(lines) if at and "|" in lines[at - 1] and _RULE.fullmatch(line)]
    if len(rules) != 1:
        return NO_JSON
    [rule] = rules
    rows = [_cells(lines[rule - 1])]
    for line in lines[rule + 1 :]:
        if "|" not in line:
            break
        rows.append(_cells(line))
    return _rows(rows)


def _cells(line: str) -> list[str]:
    inner = line.removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _csv(text: str) -> Any:
    first = text.lstrip("\r\n").split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=first.count)
    if delimiter not in first:
        return NO_JSON
    try:
        rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter, strict=True) if row]
    except csv.Error:
        return NO_JSON
    if len(rows) <= _FEWEST_ROWS or not all(_TITLE.fullmatch(title.strip()) for title in rows[0]):
        return NO_JSON
    return _rows(rows)


def _rows(rows: Sequence[Sequence[str]]) -> Any:
    """An object for each row below the titles, or NO_JSON if they do not fit."""
    titles = [title.strip() for title in rows[0]]
    is_table = len(rows) > 1 and len(set(titles)) == len(titles) and all(len(row) == len(titles) for row in rows)
    if not is_table:
        return NO_JSON
    return [dict(zip(titles, map(_cell, row), strict=True)) for row in rows[1:]]


def _cell(text: str) -> Any:
    """A number if it is written as one; a code such as 007 stays text."""
    text = text.strip()
    return json.loads(text) if _NUMBER.fullmatch(text) else text
