"""How a client writes the entries of its servers: its variables, its keys, and what concerns only the client.

Values and pure functions. `clients.entries` applies them; forms that differ in more than names are made flat by the
`shape` of the client, which raises UnusableEntry for what only that client can start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mcp_optimizer.config.textfiles.checked_values import UnusableEntry, mapping, text_of

Entry = dict[str, Any]

ASKING = "what is called without asking is up to your client, or to rules"
STARTING = "how long servers may take to start is the option --start-timeout"
SHOWN = "it only concerns how the client shows it"
ELSEWHERE = "it only concerns where the client got it from"
SEARCHED = "which tools its own search hides is up to the client"

RENAMED: Mapping[str, str] = {
    "serverUrl": "url",
    "httpUrl": "url",
    "includeTools": "tools",
    "enabledTools": "tools",
    "enabled_tools": "tools",
    "available_tools": "tools",
    "excludeTools": "disabledTools",
    "disabled_tools": "disabledTools",
    "transport": "type",
    "transportType": "type",
    "environment": "env",
}
"""Keys of several clients, and ours."""
LEFT_OUT: Mapping[str, str] = {
    "autoApprove": ASKING,
    "alwaysAllow": ASKING,
    "name": SHOWN,
    "gallery": ELSEWHERE,
    "version": ELSEWHERE,
}
"""Keys of several clients that mean nothing here, and why."""

_OURS = re.compile(r"\$\{([^}]{0,1000})\}")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DEEPEST = 20


def _with_values(text: str, values: Mapping[str, str], _where: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        expression = match.group(1)
        return f"${{{expression[4:]}}}" if expression.startswith("env:") else values.get(expression, match.group())

    return _OURS.sub(replaced, text)


def _as_it_is(text: str, _values: Mapping[str, str], _where: str) -> str:
    return text


class VariableSpelling(NamedTuple):
    """How a client writes variables. Ours: `${VAR}`, `${VAR:-default}`, `${secret:NAME}`, `${input:ID}`."""

    replaced: Callable[[str, Mapping[str, str], str], str]
    """A text in our way, given the values of editors' variables, and the key that the text is under. Variables of the
    environment are never looked up, so references stay references. Raises UnusableEntry where there is no such way.
    """
    leaves_braces: bool = False
    """Whether `${...}` is plain text to the client."""
    is_bare: bool = False
    """Whether `$VAR` is a variable, too."""


BRACES = VariableSpelling(_with_values)
"""`${X}`, `${env:X}`, `${input:x}`, `${userHome}`, `${workspaceFolder}`."""
NO_VARIABLES = VariableSpelling(_as_it_is, leaves_braces=True)


class EntryReading(NamedTuple):
    """A client's way of writing entries."""

    variables: VariableSpelling = BRACES
    shape: Callable[[Entry], Entry] = dict
    """Makes an entry flat, with keys of ours or of `renamed`. What it does not use stays, so that it is named later."""
    renamed: Mapping[str, str] = RENAMED
    left_out: Mapping[str, str] = LEFT_OUT
    """Keys that are known and mean nothing here, and why."""
    in_milliseconds: bool = False
    """Whether `timeout` is."""

    def spelled(self, value: Any, values: Mapping[str, str], where: str = "", level: int = 0) -> Any:
        """A value whose strings have variables in our way."""
        if level > _DEEPEST:
            raise UnusableEntry("it is nested too deeply")
        if isinstance(value, str):
            return self.variables.replaced(value, values, where)
        if isinstance(value, list):
            return [self.spelled(item, values, where, level + 1) for item in value]
        if isinstance(value, dict):
            return {str(key): self.spelled(item, values, where or str(key), level + 1) for key, item in value.items()}
        return value


def has_variable(value: Any) -> bool:
    """Whether something in a value looks like a variable of ours."""
    if isinstance(value, str):
        return _OURS.search(value) is not None
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(has_variable(item) for item in items)


def with_names(entry: Entry, names: Mapping[str, str]) -> Entry:
    """The entry with other names for some keys, unless the new name is there already."""
    return {key if names.get(key) in entry else names.get(key, key): value for key, value in entry.items()}


def variable_name(value: Any, where: str) -> str:
    """The name of an environment variable. What is none is not quoted: it may be a secret in the wrong place."""
    if not _NAME.fullmatch(text_of(value, where)):
        raise UnusableEntry(f'"{where}" must be a list of names of environment variables')
    return str(value)


def with_environment(entry: Entry, names: list[str]) -> Entry:
    """The entry with variables that the client passes on by name, before those that it writes out.

    A client leaves out what is not set. Here that is a problem with a name, not a server without its token.
    """
    return entry | {"env": {name: f"${{{name}}}" for name in names} | mapping(entry.get("env") or {}, "env")}


def value_at(document: Any, path: tuple[str, ...]) -> Any:
    """What these keys lead to; None if nothing."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document
