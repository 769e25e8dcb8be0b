"""From what a person entered in a form to the arguments of a tool, and back. Pure; called by `trial_routes`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from mcp_optimizer.dashboard.html import visible
from mcp_optimizer.dashboard.trial_fields import RAW, Control, FormField, TrialForm, WrongEntries
from mcp_optimizer.textfiles.kinds import FileKind, UnreadableText
from mcp_optimizer.textfiles.reading import parsed

_LONGEST_NUMBER = 300


def arguments_of(form: TrialForm, entered: Mapping[str, str]) -> dict[str, Any]:
    """The arguments that somebody entered. An empty field that is not required is left out."""
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
        raise WrongEntries(problems)
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        value = _json(text) if text.strip() else {}
    except ValueError as error:
        raise WrongEntries({RAW: str(error)}) from None
    if not isinstance(value, dict):
        raise WrongEntries({RAW: "The arguments must be a JSON object: { ... }."})
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
    """What somebody enters to get these arguments; None if this form cannot express them."""
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
    except WrongEntries:
        return None
    return entered if is_same else None


def _in_order(form: TrialForm, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: arguments[field.name] for field in form.fields if field.name in arguments}


def entered_in(field: FormField, value: Any) -> str | None:
    """What somebody enters in a field to get a value; None if that cannot be entered there."""
    if field.control is Control.LINES:
        if not isinstance(value, list):
            return None
        lines = [entered_in(FormField("", "", field.item), one) for one in value]
        texts = [line for line in lines if line and "\n" not in line]
        return "\n".join(texts) if len(texts) == len(value) else None
    if field.control is Control.TEXT:
        # A page shows hidden characters as their numbers, which would then be what is sent.
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
    """On one line, in ASCII, so that no page changes it."""
    return json.dumps(value)


def readable_json(value: Any) -> str:
    """For people to read and change. Nothing in it is hidden: such characters are written as JSON escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if visible(text) == text else json.dumps(value, indent=2)
