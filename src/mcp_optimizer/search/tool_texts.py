"""Makes the texts of tools and requests that search reads. Called by ingestion, the engine and training. Pure.

`Document` is a tool in fields, built once per definition, at ingestion. The encoder was trained on exactly the texts
that `tool_text` and `query_parts` make: training imports them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.runtime.patterns import regex

DESCRIPTION_CHARS: Final = 600
PURPOSE_CHARS: Final = 100
PARAMETERS_SHOWN: Final = 16
LONG_QUERY_WORDS: Final = 20
SHORTEST_PART_WORDS: Final = 5
MOST_PARTS: Final = 10

REQUEST_WORDS: Final = 384
REQUEST_CHARS: Final = 2_000
"""How much of a request is read. The encoder reads at most 256 pieces of the complete text and of each part; no
request that people wrote for a benchmark finds its tools better with more.
"""

KEYWORD_WORDS: Final = 40
KEYWORD_CHARS: Final = 300
"""How much is read of the keywords sent with a request, which are read again with each of its actions."""

_WORD = regex(r"[^\W_]+")
_CAMEL = regex(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PART_END = regex(r"(?<=[.!?;:])\s+|\n+|,\s+(?=(?:and|then|also|plus|but|so)\b)|\s+(?=and then\b)")
_WORD_OR_MARK = regex(r"[^\W_]+|\S")
_ENDLESS_WORD = regex(r"([A-Za-z0-9_]{100})[A-Za-z0-9_]+")
_SPACE = regex(r"\s+")
_SERVER_NOISE = frozenset({"mcp", "server", "servers"})


def split_words(text: str) -> str:
    """The words of an identifier or title, lower case: `getHTTPStatus_v2` gives `get http status v2`."""
    return " ".join(_WORD.findall(_CAMEL.sub(" ", text))).lower()


def server_words(server: str) -> str:
    """The words of a server's name, without those common to all servers (`mcp`, `server`)."""
    words = split_words(server).split()
    return " ".join([word for word in words if word not in _SERVER_NOISE] or words)


def parameter_names(schema: Mapping[str, Any] | None) -> list[str]:
    """The names of a tool's parameters, required ones first."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping):
        return []
    required = schema.get("required")
    wanted = required if isinstance(required, list) else []
    first = [name for name in wanted if isinstance(name, str) and name in properties]
    named = frozenset(first)
    return [*first, *(name for name in properties if name not in named)]


def tool_text(server: str, tool: McpTool, purpose: str = "") -> str:
    """Server, name, description and parameters, in this order. `purpose`: the server's description in its file."""
    description = _SPACE.sub(" ", tool.description or tool.title or "").strip()
    words = f"{server_words(server)} {purpose[:PURPOSE_CHARS]}" if purpose else server_words(server)
    head = f"{words} {split_words(tool.name)}: {description[:DESCRIPTION_CHARS]}"
    shown = ", ".join(split_words(name) for name in parameter_names(tool.input_schema)[:PARAMETERS_SHOWN])
    return f"{head} ({shown})" if shown else head


def query_parts(text: str) -> list[str]:
    """The sentences of a long request, to be embedded separately; none for a short one.

    A request with many steps asks for many tools, and a single vector for it would be near none of them.
    """
    if len(text.split()) < LONG_QUERY_WORDS:
        return []
    parts: list[str] = []
    for piece in _PART_END.split(text):
        if parts and len(parts[-1].split()) < SHORTEST_PART_WORDS:
            parts[-1] = f"{parts[-1]} {piece.strip()}"
        elif piece.strip():
            parts.append(piece.strip())
    while len(parts) > MOST_PARTS:
        shortest = min(range(len(parts) - 1), key=lambda at: len(parts[at]) + len(parts[at + 1]))
        parts[shortest : shortest + 2] = [f"{parts[shortest]} {parts[shortest + 1]}"]
    return parts if len(parts) > 1 else []


def request_read(text: str) -> str:
    """The beginning of a request, the only part that is read. Reading a long request completely would cost a hundred
    times as much as a usual one, and its end does not help to find tools.
    """
    return _beginning(text, REQUEST_WORDS, REQUEST_CHARS)


def keywords_read(text: str) -> str:
    """The beginning of the keywords sent with a request, the only part that is read."""
    return _beginning(text, KEYWORD_WORDS, KEYWORD_CHARS)


def _beginning(text: str, most_words: int, most_chars: int) -> str:
    if len(text) > most_chars:
        # Shorten strings too long for a word of any language, so the text after them is still read.
        text = _ENDLESS_WORD.sub(r"\1", text)[:most_chars]
    last = next(islice(_WORD_OR_MARK.finditer(text), most_words - 1, None), None)
    return text if last is None else text[: last.end()]


_DEEPEST = 6
_MOST_PARAMETERS = 400
"""Schemas are untrusted: reading a recursive or huge one stops at these limits."""

_EXAMPLES = regex(
    r"\((?:e\.g\.|for example|for instance|such as|examples?|like)(?!\w)[^()]{0,300}\)|\be\.g\.[^.;()\n]{0,300}",
    re.IGNORECASE,
)
"""Example values in a parameter's description, which say nothing about the tool's purpose: "Asia/Tokyo" does not make a
time converter the answer to "what time is it in Tokyo".
"""


@dataclass(frozen=True)
class Document:
    """The searchable text of a tool, by field."""

    name: str
    server: str
    description: str
    parameters: str
    about: str = ""
    """The text about the server; counted in the index field `all`, without a field of its own."""


def document(server: str, tool: McpTool, about: str = "") -> Document:
    title = tool.title or ""
    description = f"{title} {tool.description or ''}".strip()
    parameters = []
    for count, text in enumerate(parameter_texts(tool.input_schema)):
        if count >= _MOST_PARAMETERS:
            break
        parameters.append(text)
    return Document(
        name=tool.name,
        server=server_words(server),
        description=description,
        parameters=" ".join(parameters),
        about=about,
    )


def parameter_texts(schema: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Names, descriptions and enum values of all parameters, including nested ones."""
    if depth > _DEEPEST:
        return
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        for name, parameter in properties.items():
            yield str(name)
            if isinstance(parameter, Mapping):
                yield from _own_texts(parameter)
                yield from parameter_texts(parameter, depth + 1)
    for key in ("items", "additionalProperties"):
        if isinstance(child := schema.get(key), Mapping):
            yield from parameter_texts(child, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        for child in _list(schema.get(key)):
            if isinstance(child, Mapping):
                yield from parameter_texts(child, depth + 1)
    for key in ("$defs", "definitions"):
        definitions = schema.get(key)
        for child in definitions.values() if isinstance(definitions, Mapping) else ():
            if isinstance(child, Mapping):
                yield from parameter_texts(child, depth + 1)


def _own_texts(parameter: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(description := parameter.get("description"), str):
        yield _EXAMPLES.sub(" ", description)
    yield from (choice for choice in _list(parameter.get("enum")) if isinstance(choice, str))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
