"""Arguments given as `key=value`, read by the types in a tool's schema, as far as these are plain. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.errors import InvalidRequest, quoted

_WORDS = {"true": True, "false": False}


def typed_arguments(pairs: Iterable[tuple[str, str]], schema: Mapping[str, Any]) -> dict[str, Any]:
    """A key that is repeated makes a list. What a schema does not say stays text; the tool's own check follows."""
    properties = properties_of(schema)
    found: dict[str, Any] = {}
    for key, text in pairs:
        about = properties.get(key)
        about = about if isinstance(about, Mapping) else {}
        kinds = _kinds(about)
        if "array" in kinds and "string" not in kinds and not text.lstrip().startswith("["):
            items = about.get("items")
            item = _value(key, text, _kinds(items) if isinstance(items, Mapping) else set())
            found[key] = [*found.get(key, []), item]
        elif key in found:
            raise InvalidRequest(f"The argument {quoted(key)} is given twice, and it is no list.")
        else:
            found[key] = _value(key, text, kinds)
    return found


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    kinds = schema.get("type")
    return {kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)}


def _value(key: str, text: str, kinds: set[str]) -> Any:
    if not kinds or "string" in kinds:
        return text
    if "boolean" in kinds and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        wanted = " or ".join(sorted(kinds))
        raise InvalidRequest(f"The argument {quoted(key)} has to be of type {wanted}, as JSON.") from None
