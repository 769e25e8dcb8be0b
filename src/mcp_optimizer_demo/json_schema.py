"""Short constructors for the plain JSON Schema that demo tools declare.

Every demo server builds its parameter and output schemas from these; they know nothing of any domain.
Extra keyword arguments are JSON Schema keywords and go in as they are (`minimum=1`, `maxLength=200`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

DRAFT_07 = "http://json-schema.org/draft-07/schema#"


def integer(description: str, **keywords: Any) -> Schema:
    return {"type": "integer", **keywords, "description": description}


def number(description: str, **keywords: Any) -> Schema:
    return {"type": "number", **keywords, "description": description}


def string(description: str, **keywords: Any) -> Schema:
    return {"type": "string", **keywords, "description": description}


def boolean(description: str, **keywords: Any) -> Schema:
    return {"type": "boolean", **keywords, "description": description}


def one_of(values: Sequence[str], description: str, **keywords: Any) -> Schema:
    return {"type": "string", "enum": list(values), **keywords, "description": description}


def array(items: Schema, description: str, **keywords: Any) -> Schema:
    return {"type": "array", "items": items, **keywords, "description": description}


def nullable(schema: Schema) -> Schema:
    """The same schema, also accepting null; an enum gets null as one more value."""
    widened = {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        widened["enum"] = [*schema["enum"], None]
    return widened


def record(properties: Mapping[str, Schema], required: Sequence[str] = (), description: str = "") -> Schema:
    """An object that takes no other properties."""
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    schema["additionalProperties"] = False
    if description:
        schema["description"] = description
    return schema


def arguments(properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """The root of a tool's input schema."""
    return {**record(properties, required), "$schema": DRAFT_07}


def result(properties: Mapping[str, Schema], required: Sequence[str] | None = None) -> Schema:
    """The root of a tool's output schema; every property is required unless a list says otherwise."""
    return {**record(properties, list(properties) if required is None else required), "$schema": DRAFT_07}
