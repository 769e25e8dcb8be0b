"""What people may give for a stored script: names and texts that mean to a model what a person sees. Pure.

Called where a script is saved. Whether a source can be run, and which tools it uses, is for others to find out.
"""

from __future__ import annotations

import json
import keyword
import re
from typing import Any

from mcp_optimizer.domain.hidden_text import has_hidden
from mcp_optimizer.domain.naming import SEPARATOR
from mcp_optimizer.domain.own_tools import OWN_NAMES
from mcp_optimizer.domain.stored_script import ParameterType, ScriptParameter
from mcp_optimizer.errors import InvalidRequest, quoted

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,47}")
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NOT_IN_A_SOURCE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_name(name: str) -> None:
    """Raises InvalidRequest unless this can be a script's name."""
    if not _NAME.fullmatch(name) or SEPARATOR in name:
        raise InvalidRequest(
            f"A script cannot be called {quoted(name)}: its name begins with a letter, and has at most 48 letters, "
            f"digits, '-' and '_', without '{SEPARATOR}'."
        )
    if name.casefold().replace("-", "_") in OWN_NAMES:
        raise InvalidRequest(f"A script cannot be called {quoted(name)}: the gateway has a tool of that name.")


def check_description(text: str, most: int) -> None:
    """Raises InvalidRequest unless this can describe a script: one line that a person sees as a model reads it."""
    if not text.strip():
        raise InvalidRequest("A stored script needs a description: a line that says what it is for (--description).")
    if len(text) > most:
        raise InvalidRequest(
            f"The description has {len(text):,} characters; {most:,} are allowed (limits.stored_script_description)."
        )
    if _UNPRINTABLE.search(text) or has_hidden(text):
        raise InvalidRequest("The description must be one line, without control or hidden characters.")


def check_source(text: str, most: int) -> None:
    """Raises InvalidRequest unless this text can be kept as a script. Whether it can be run is not looked at."""
    if not text.strip():
        raise InvalidRequest("The script is empty.")
    if len(text) > most:
        raise InvalidRequest(f"The script has {len(text):,} characters; {most:,} are allowed.")
    if (found := _NOT_IN_A_SOURCE.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise InvalidRequest(f"Line {line} of the script has a control character ({ord(found[0]):#06x}).")
    if has_hidden(text):
        raise InvalidRequest("The script has hidden characters: what it does is not what a person sees.")


def parameter_of(text: str) -> ScriptParameter:
    """A parameter as it is written on the command line: `name:type`, `name:type=default`, or only `name`."""
    declared, equals, given = text.partition("=")
    name, colon, kind = declared.partition(":")
    found = ParameterType.named(kind.strip()) if colon else ParameterType.ANY
    if found is None:
        known = ", ".join(one.value for one in ParameterType)
        raise InvalidRequest(f"The parameter {quoted(text)} has an unknown type. Types: {known}.")
    return checked_parameter(ScriptParameter(name.strip(), found, _default(text, found, given) if equals else ""))


def checked_parameter(parameter: ScriptParameter) -> ScriptParameter:
    """The same; raises InvalidRequest unless a variable of a script can have its name."""
    name = parameter.name
    if not _PARAMETER.fullmatch(name) or SEPARATOR in name:
        raise InvalidRequest(
            f"A parameter cannot be called {quoted(name)}: it becomes a variable of the script. Its name begins with a "
            "letter, and has at most 64 letters, digits and '_'."
        )
    if keyword.iskeyword(name):
        raise InvalidRequest(f"A parameter cannot be called {quoted(name)}: that is a word of Python.")
    return parameter


def _default(text: str, kind: ParameterType, given: str) -> str:
    """The default as JSON. A text needs no quotes."""
    if kind is ParameterType.STRING:
        return json.dumps(given)
    try:
        value = json.loads(given, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"The default of the parameter {quoted(text)} is not JSON.") from None
    if not kind.admits(value):
        raise InvalidRequest(f"The default of the parameter {quoted(text)} is not of the type {kind}.")
    return json.dumps(value)


def _refused(constant: str) -> Any:
    raise ValueError(constant)
