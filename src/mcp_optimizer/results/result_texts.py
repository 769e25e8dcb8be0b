"""Reads the parts of a result that a model sees: its texts, wherever they are, and the data in them (JSON, Python
literals, tables). Pure.

Knows the shape of an MCP result, but not limits or costs. Of a large result, `example` parses only the beginning, which
is enough to learn its shape.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from mcp_optimizer.largejson import compact_json as json_text
from mcp_optimizer.largejson.compact_json import parsed
from mcp_optimizer.largejson.raw import LargeText, LargeValue, RawJson
from mcp_optimizer.results.metadata import DataInfo
from mcp_optimizer.results.rows import find_table, find_text_table, may_have_table
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.patterns import regex

_NOT_TEXT = frozenset({"image", "audio"})

PARSED = 1_000_000
"""Maximum bytes of JSON that are parsed; parsing more would block the interpreter too long."""

Text = str | LargeText

_ENCODED = 1 << 20


@dataclass(frozen=True)
class Slot:
    """A text in a result, and the number of its content block."""

    block: int
    text: Text


_LONG = 1_000
"""Minimum characters of a text that is recognised in any field of the structured content."""


class _NoJson:
    """Means "not JSON", because None is a JSON value."""


NO_JSON = _NoJson()


class RepeatedStructure(dict[str, Any]):
    """Structured content that the texts of its result repeat. On the wire it looks like any other object; no server can
    send this type. Code that knows which of the two a client's model reads can leave out the other.
    """


def marked_as_repeated(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with its structured content marked as repeating the texts."""
    structured = result["structuredContent"]
    if isinstance(structured, dict):
        structured = RepeatedStructure(structured)
    return {**result, "structuredContent": structured}


class Reading:
    """One result; each part is read on first use and remembered."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.result = result
        content = result.get("content")
        self.blocks: list[Any] = content if isinstance(content, list) else []

    @lazy
    def slots(self) -> list[Slot]:
        """The texts."""
        return [slot for number, block in enumerate(self.blocks) if (slot := _slot(number, block)) is not None]

    @lazy
    def structured(self) -> Any:
        """`structuredContent`, or NO_JSON if there is none; unparsed if it is large."""
        value = self.result.get("structuredContent")
        return NO_JSON if value is None else value

    @property
    def has_large_structure(self) -> bool:
        return isinstance(self.structured, LargeValue)

    @lazy
    def structured_text(self) -> Text:
        if isinstance(self.structured, LargeValue):
            return LargeText.of(self.structured)
        return "" if self.structured is NO_JSON else compact(self.structured)

    @lazy
    def unsaid(self) -> Any:
        """The part of the structured content that the texts do not repeat, or NO_JSON. A text repeats a value if it is
        that value or its JSON, alone or in a single field; a list may have a text for each element. A large structure
        is not compared and counts as not repeated.
        """
        structured = self.structured
        texts = [slot.text for slot in self.slots if _is_text(self.blocks[slot.block])]
        if structured is NO_JSON or isinstance(structured, RawJson) or not texts:
            return structured
        if self._says(texts, structured) or structured == {}:
            return NO_JSON
        if not isinstance(structured, dict):
            return structured
        if len(structured) == 1:
            [inner] = structured.values()
            return NO_JSON if self._says(texts, inner) or self._lists(texts, inner) else structured
        long = [text for text in texts if size_of(text) >= _LONG]
        said = next((key for key, value in structured.items() if any(is_same_text(value, text) for text in long)), None)
        return structured if said is None else {key: value for key, value in structured.items() if key != said}

    def _says(self, texts: list[Text], value: Any) -> bool:
        if isinstance(value, str | LargeText):
            return any(is_same_text(value, text) for text in texts)
        if isinstance(value, RawJson) or self.size > PARSED:
            return False
        if isinstance(value, dict | list):
            if len(self.slots) == 1:
                return bool(self.value == value)
            return any(json_value(text) == value for text in texts)
        written = compact(value)
        return any(text == written for text in texts)

    def _lists(self, texts: list[Text], value: Any) -> bool:
        """Whether each element of a list is a text, in order."""
        if not isinstance(value, list) or len(value) != len(texts):
            return False
        return all(self._says([text], element) for text, element in zip(texts, value, strict=True))

    def in_text(self) -> dict[str, Any]:
        """The result without structured content; the part that no text repeats is added as a last text."""
        rest = {key: value for key, value in self.result.items() if key != "structuredContent"}
        if self.unsaid is not NO_JSON:
            written = LargeText.of(self.unsaid) if isinstance(self.unsaid, LargeValue) else compact(self.unsaid)
            rest["content"] = [*self.blocks, {"type": "text", "text": written}]
        return rest

    @lazy
    def texts(self) -> list[Text]:
        """The texts that a model pays for: those of the blocks, or the structured content as JSON if there are none."""
        return [slot.text for slot in self.slots] or ([] if self.structured is NO_JSON else [self.structured_text])

    @lazy
    def size(self) -> int:
        """Characters of text; bytes for large ones."""
        return sum(map(size_of, self.texts))

    @lazy
    def value(self) -> Any:
        """The JSON value of the only text; NO_JSON if there is none or it is too large to be parsed."""
        return json_value(self.slots[0].text) if len(self.slots) == 1 else NO_JSON

    def forget_value(self) -> None:
        """Free the parsed value; the next access parses again."""
        self.__dict__.pop("value", None)

    @lazy
    def has_uncounted(self) -> bool:
        """Whether it contains something other than text, which is not counted."""
        return any(isinstance(block, dict) and _is_binary(block) for block in self.blocks)

    @lazy
    def data(self) -> DataInfo | None:
        """The table in the structured content, otherwise in the text."""
        for value in (self.structured, self.value):
            if value is not NO_JSON and (table := find_table(value)) is not None:
                return DataInfo(table.row_count, table.column_count)
        if self.value is not NO_JSON or len(self.slots) != 1:
            return None
        if isinstance(text := self.slots[0].text, str) and may_have_table(text):
            found = find_text_table(text.split("\n"))
            return DataInfo(found.row_count, found.column_count) if found else None
        return None


def size_of(text: Text) -> int:
    return len(text) if isinstance(text, str) else text.size


def is_same_text(value: Any, text: Text) -> bool:
    """Whether a value of the structured content is the same as a text."""
    if isinstance(value, LargeText) and isinstance(text, str):
        return value.size <= PARSED and value.parsed() == text
    # A large text that occurs twice in a message is one object.
    return value is text or (isinstance(value, str) and value == text)


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def _slot(number: int, block: Any) -> Slot | None:
    if not isinstance(block, dict):
        return Slot(number, compact(block))
    if isinstance(block.get("text"), Text):
        return Slot(number, _light(block["text"]))
    resource = block.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), Text):
        return Slot(number, _light(resource["text"]))
    # A model reads a resource link, or a block of unknown type, as JSON.
    return None if _is_binary(block) else Slot(number, compact(block))


def _light(text: Text) -> Text:
    """The text as a string, unless it is too large."""
    return text.parsed() if isinstance(text, LargeText) and text.size <= PARSED else text


def _is_binary(block: Mapping[str, Any]) -> bool:
    kind, resource = block.get("type"), block.get("resource")
    return (isinstance(kind, str) and kind in _NOT_TEXT) or (isinstance(resource, dict) and "blob" in resource)


def compact(value: Any) -> str:
    """JSON without unnecessary whitespace, for values that may contain large ones."""
    return json_text.compact(value, RawJson.parsed)


def json_value(text: Text) -> Any:
    """The JSON object or array in a text, or NO_JSON."""
    if isinstance(text, LargeText):
        return NO_JSON
    start = text.lstrip(" \t\r\n")[:1]
    if start not in ("{", "["):
        return NO_JSON
    try:
        return json_text.parsed(text)
    except ValueError:
        return NO_JSON


def encoded(text: str) -> bytes:
    """Encode as UTF-8, including half surrogate pairs; in chunks, because encoding blocks the interpreter."""
    if len(text) <= _ENCODED or text.isascii():
        # ASCII is a plain copy, however long.
        return text.encode("utf-8", "surrogatepass")
    # Joining a list would hold the text twice.
    whole = io.BytesIO()
    for at in range(0, len(text), _ENCODED):
        whole.write(text[at : at + _ENCODED].encode("utf-8", "surrogatepass"))
    return whole.getvalue()


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


_EXAMPLE_READ = 32 * 1024
"""Characters that are parsed for an example."""


def example(reading: Reading) -> Any:
    """An example of the JSON that a tool returns, or NO_JSON."""
    structured = reading.structured
    if isinstance(structured, LargeValue):
        return _beginning(bytes(structured.json[:_EXAMPLE_READ]))
    if structured is NO_JSON or _is_wrapped_text(structured):
        found = _only_text(reading)
        return structured if found is NO_JSON else found
    return structured


def _is_wrapped_text(structured: Any) -> bool:
    """Whether the structured content is a text in `result`, as Python servers wrap one; the text may be JSON."""
    return isinstance(structured, dict) and len(structured) == 1 and isinstance(structured.get("result"), str)


def _only_text(reading: Reading) -> Any:
    if len(reading.slots) != 1:
        return NO_JSON
    text = reading.slots[0].text
    if isinstance(text, LargeText):
        return _beginning(text.beginning(_EXAMPLE_READ).encode())
    # Replace half surrogate pairs, because one must not prevent learning.
    return reading.value if len(text) <= _EXAMPLE_READ else _beginning(text[:_EXAMPLE_READ].encode("utf-8", "replace"))


def _beginning(text: bytes) -> Any:
    """The complete values of a JSON text that may be cut off anywhere."""
    try:
        found = pydantic_core.from_json(text, allow_partial=True)
    except ValueError:
        return NO_JSON
    inner = found
    while isinstance(inner, dict | list) and inner:
        last = next(reversed(inner)) if isinstance(inner, dict) else len(inner) - 1
        if isinstance(inner, list) and last:
            # The other elements of the list show which keys an element has.
            inner.pop()
            break
        inner = inner[last]
    return found if isinstance(found, dict | list) else NO_JSON


# Reads texts that are data but no JSON: Python literals, CSV and Markdown tables. Reads a text whole or not at all:
# what only begins like data, or has rows of different lengths, is text. No text is evaluated, and the time is linear
# in its length.

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
