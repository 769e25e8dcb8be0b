"""A tool as search sees it: four fields of text. Pure. Built once per definition, at ingestion."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.search.tooltext import server_words

_DEEPEST = 6
_MOST_PARAMETERS = 400
"""Schemas are untrusted input: reading a recursive or huge one stops at these limits."""

_EXAMPLES = re.compile(
    r"\((?:e\.g\.|for example|for instance|such as|examples?|like)(?!\w)[^()]{0,300}\)|\be\.g\.[^.;()\n]{0,300}",
    re.IGNORECASE,
)
"""Example values in a parameter's description. They say what it takes, not what the tool is for: "Asia/Tokyo" does not
make a converter of times the answer to "what time is it in Tokyo".
"""


@dataclass(frozen=True)
class Document:
    """The searchable text of a tool, by field."""

    name: str
    server: str
    description: str
    parameters: str
    about: str = ""
    """What is said about the server: found as part of the whole, but no field of its own."""


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
