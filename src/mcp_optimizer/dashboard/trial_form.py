"""The form for trying a tool: fields from its input schema, and the arguments made of the entered values.

Pure; called by `trial_pages`. Schemas come from servers, so everything has a limit: values that fit no field of their
own are entered as JSON. Checks that the gateway makes anyway are not repeated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mcp_optimizer.config.textfiles.kinds import FileKind, UnreadableText
from mcp_optimizer.config.textfiles.reading import parsed
from mcp_optimizer.dashboard.html import visible
from mcp_optimizer.domain.json_schema import properties_of, reference_of, required_of

RAW = "arguments"
"""The name of the single field for all arguments as JSON."""


class Control(StrEnum):
    """The kind of control for a value."""

    TEXT = "text"
    INTEGER = "whole number"
    NUMBER = "number"
    BOOLEAN = "yes or no"
    CHOICE = "choice"
    LINES = "one per line"
    JSON = "JSON"


@dataclass(frozen=True)
class FormField:
    """One argument. `key` is its name in the form, `name` its name in the arguments."""

    key: str
    name: str
    control: Control
    is_required: bool = False
    description: str = ""
    default: str = ""
    """As a person would enter it; empty if there is none."""
    choices: tuple[str, ...] = ()
    """Each choice as JSON."""
    item: Control = Control.TEXT
    """The control for each line of a list."""


@dataclass(frozen=True)
class TrialForm:
    """The fields of a tool. With no fields and `is_raw`, all arguments are one JSON object."""

    fields: tuple[FormField, ...] = ()
    is_raw: bool = False


RAW_FORM = TrialForm(is_raw=True)


class InvalidEntries(ValueError):
    """An entry is not a valid value. `problems`: messages by the key of the field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = dict(problems)


_LONGEST_NUMBER = 300


def arguments_of(form: TrialForm, entered: Mapping[str, str]) -> dict[str, Any]:
    """The arguments for the entered values. An empty field that is not required is left out."""
    if form.is_raw:
        return _object(entered.get(RAW, ""))
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for field in form.fields:
        text = entered.get(field.key, "").replace("\r\n", "\n")
        if not text and not (field.is_required and field.control in (Control.TEXT, Control.LINES)):
            if field.is_required:
                problems[field.key] = "A value is required."
            continue
        try:
            found[field.name] = _value(field, text)
        except ValueError as error:
            problems[field.key] = str(error)
    if problems:
        raise InvalidEntries(problems)
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        value = _json(text) if text.strip() else {}
    except ValueError as error:
        raise InvalidEntries({RAW: str(error)}) from None
    if not isinstance(value, dict):
        raise InvalidEntries({RAW: "The arguments must be a JSON object: { ... }."})
    return value


def _value(field: FormField, text: str) -> Any:
    if field.control is Control.LINES:
        return [_READ[field.item](line) for line in text.split("\n") if line]
    if field.control is Control.CHOICE:
        if text not in field.choices:
            raise ValueError("This is none of the choices.")
        return json.loads(text)
    return _READ[field.control](text)


def _json(text: str) -> Any:
    try:
        return parsed(text, FileKind.JSON)
    except UnreadableText as error:
        raise ValueError(f"This is not JSON: {str(error).rstrip('.')}.") from None


def _number(text: str) -> Any:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError("This number is too long.")
    try:
        value = json.loads(text.strip(), parse_constant=_refused)
    except ValueError:
        raise ValueError("This is not a number.") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("This is not a number.")
    return value


def _refused(_name: str) -> Any:
    raise ValueError


def _integer(text: str) -> int:
    value = _number(text)
    if not math.isfinite(value) or value != int(value):
        raise ValueError("This is not a whole number.")
    return int(value)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("This is neither true nor false.")
    return text == "true"


_READ: Mapping[Control, Callable[[str], Any]] = {
    Control.TEXT: lambda text: text,
    Control.INTEGER: _integer,
    Control.NUMBER: _number,
    Control.BOOLEAN: _boolean,
    Control.JSON: _json,
}


def entered_for(form: TrialForm, arguments: Mapping[str, Any]) -> dict[str, str] | None:
    """The entries that would give these arguments; None if this form cannot express them."""
    if form.is_raw:
        return {RAW: readable_json(arguments)}
    known = {field.name: field for field in form.fields}
    if arguments.keys() - known.keys():
        return None
    texts = {known[name].key: entered_in(known[name], value) for name, value in arguments.items()}
    if None in texts.values():
        return None
    entered = {key: text for key, text in texts.items() if text is not None}
    try:
        is_same = as_json(arguments_of(form, entered)) == as_json(_in_order(form, arguments))
    except InvalidEntries:
        return None
    return entered if is_same else None


def _in_order(form: TrialForm, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: arguments[field.name] for field in form.fields if field.name in arguments}


def entered_in(field: FormField, value: Any) -> str | None:
    """The entry that would give a value in a field; None if there is none."""
    if field.control is Control.LINES:
        if not isinstance(value, list):
            return None
        lines = [entered_in(FormField("", "", field.item), one) for one in value]
        texts = [line for line in lines if line and "\n" not in line]
        return "\n".join(texts) if len(texts) == len(value) else None
    if field.control is Control.TEXT:
        # A page shows hidden characters as codes, so submitting the field would send the codes.
        return value if isinstance(value, str) and "\r" not in value and visible(value) == value else None
    if field.control is Control.CHOICE:
        return text if (text := as_json(value)) in field.choices else None
    if field.control is Control.JSON:
        return readable_json(value)
    is_flag = isinstance(value, bool)
    if is_flag is not (field.control is Control.BOOLEAN) or not isinstance(value, bool | int | float):
        return None
    return as_json(value)


def as_json(value: Any) -> str:
    """On one line and in ASCII, so that no page changes it."""
    return json.dumps(value)


def readable_json(value: Any) -> str:
    """JSON for people to read and change. Hidden characters are written as JSON escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if visible(text) == text else json.dumps(value, indent=2)


MOST_FIELDS = 50
MOST_CHOICES = 200
LONGEST_NAME = 200
_LONGEST_CHOICE = 300
_LONGEST_DEFAULT = 200
_LONGEST_DESCRIPTION = 500
_MOST_STEPS = 8
"""References and alternatives that are followed to find the kind of a field."""


def form_for(schema: Any) -> TrialForm:
    """The form for a tool's input schema, however malformed it is."""
    if not isinstance(schema, Mapping):
        return RAW_FORM
    properties = properties_of(schema)
    if len(properties) > MOST_FIELDS or any(not name or len(name) > LONGEST_NAME for name in properties):
        return RAW_FORM
    required = set(required_of(schema))
    if required - properties.keys():
        return RAW_FORM
    fields = [_field(f"p{at}", name, schema, name in required) for at, name in enumerate(properties)]
    # Required fields come first.
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
    """The schema after following references and removing null as an alternative."""
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
    """The target of a reference into the schema's own definitions; no other reference is followed."""
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
    """The allowed values as JSON; None if any value is allowed, empty if there are too many to choose from."""
    values = [meant["const"]] if "const" in meant else meant.get("enum")
    if not isinstance(values, list):
        return None
    if len(values) > MOST_CHOICES or not all(map(_is_plain, values)):
        return ()
    texts = tuple(dict.fromkeys(as_json(one) for one in values))
    return texts if all(len(text) <= _LONGEST_CHOICE for text in texts) else ()


def _is_plain(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, str | int | None)
