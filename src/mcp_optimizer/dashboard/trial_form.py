"""Makes a form from the input schema of a tool, with which a person tries it. Pure; called by `trial_routes`.

Schemas come from servers, so everything has a limit: what does not fit a field of its own is entered as JSON. The form
checks nothing that the gateway checks anyway.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mcp_optimizer.dashboard.trial_fields import RAW_FORM, Control, FormField, TrialForm
from mcp_optimizer.dashboard.trial_values import as_json, entered_in
from mcp_optimizer.domain.json_schema import properties_of, reference_of, required_of

MOST_FIELDS = 50
MOST_CHOICES = 200
LONGEST_NAME = 200
_LONGEST_CHOICE = 300
_LONGEST_DEFAULT = 200
_LONGEST_DESCRIPTION = 500
_MOST_STEPS = 8
"""References and alternatives that are followed to find out what a field is."""


def form_for(schema: Any) -> TrialForm:
    """The form for a tool's input schema, whatever that is."""
    if not isinstance(schema, Mapping):
        return RAW_FORM
    properties = properties_of(schema)
    if len(properties) > MOST_FIELDS or any(not name or len(name) > LONGEST_NAME for name in properties):
        return RAW_FORM
    required = set(required_of(schema))
    if required - properties.keys():
        return RAW_FORM
    fields = [_field(f"p{at}", name, schema, name in required) for at, name in enumerate(properties)]
    # What must be entered comes first.
    return TrialForm(tuple(sorted(fields, key=lambda field: not field.is_required)))


def _field(key: str, name: str, schema: Mapping[str, Any], is_required: bool) -> FormField:
    said = properties_of(schema)[name]
    meant = _meant(said, schema)
    control, choices, item = _control(meant, schema)
    described = [part.get("description") for part in (said, meant) if isinstance(part, Mapping)]
    description = next((text for text in described if isinstance(text, str)), "")[:_LONGEST_DESCRIPTION]
    field = FormField(key, name, control, is_required, description, "", choices, item)
    defaults = [part["default"] for part in (said, meant) if isinstance(part, Mapping) and "default" in part]
    default = _default(field, defaults[0]) if defaults else None
    short = default if default is not None and len(default) <= _LONGEST_DEFAULT else ""
    return FormField(key, name, control, is_required, description, short, choices, item)


def _default(field: FormField, value: Any) -> str | None:
    try:
        return entered_in(field, value)
    except RecursionError:
        return None


def _meant(said: Any, schema: Mapping[str, Any]) -> Any:
    """What a schema says once references are followed, and null is left out as an alternative."""
    for _ in range(_MOST_STEPS):
        if not isinstance(said, Mapping):
            return said
        if (reference := reference_of(said)) is not None:
            said = _referred(reference, schema)
        elif (only := _only_alternative(said)) is not None:
            said = only
        else:
            return said
    return None


def _referred(reference: str, schema: Mapping[str, Any]) -> Any:
    """What a reference into the schema's own definitions points at; nothing else is followed."""
    place, _, name = reference.rpartition("/")
    if place not in ("#/$defs", "#/definitions"):
        return None
    there = schema.get(place[2:])
    return there.get(name) if isinstance(there, Mapping) else None


def _only_alternative(said: Mapping[str, Any]) -> Any:
    for keyword in ("anyOf", "oneOf", "allOf"):
        among = said.get(keyword)
        if isinstance(among, list) and len(among) <= _MOST_STEPS:
            others = [one for one in among if not (isinstance(one, Mapping) and one.get("type") == "null")]
            if len(others) == 1 and "type" not in said and "enum" not in said:
                return others[0]
    return None


_PLAIN = {
    "string": Control.TEXT,
    "integer": Control.INTEGER,
    "number": Control.NUMBER,
    "boolean": Control.BOOLEAN,
}


def _control(meant: Any, schema: Mapping[str, Any]) -> tuple[Control, tuple[str, ...], Control]:
    if not isinstance(meant, Mapping):
        return Control.JSON, (), Control.TEXT
    if (choices := _choices(meant)) is not None:
        return (Control.CHOICE if choices else Control.JSON), choices, Control.TEXT
    kind = _kind(meant)
    if kind == "array":
        item = _meant(meant.get("items"), schema)
        plain = _PLAIN.get(_kind(item)) if isinstance(item, Mapping) and _choices(item) is None else None
        return (Control.LINES, (), plain) if plain is not None else (Control.JSON, (), Control.TEXT)
    return _PLAIN.get(kind, Control.JSON), (), Control.TEXT


def _kind(meant: Mapping[str, Any]) -> str:
    found = meant.get("type")
    if isinstance(found, list):
        others = [one for one in found if one != "null"]
        found = others[0] if len(others) == 1 else None
    return found if isinstance(found, str) else ""


def _choices(meant: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The values that are possible, as JSON; None if any is, empty if they are too many to choose from."""
    values = [meant["const"]] if "const" in meant else meant.get("enum")
    if not isinstance(values, list):
        return None
    if len(values) > MOST_CHOICES or not all(map(_is_plain, values)):
        return ()
    texts = tuple(dict.fromkeys(as_json(one) for one in values))
    return texts if all(len(text) <= _LONGEST_CHOICE for text in texts) else ()


def _is_plain(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, str | int | None)
