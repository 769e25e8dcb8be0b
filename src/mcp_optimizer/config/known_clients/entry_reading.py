"""How a client writes the entries of its servers: its variables, its keys, and what concerns only the client.

Values and pure functions. `clients.entries` applies them; a client whose entries differ in more than names has a
`shape` that flattens them and raises UnusableEntry for servers that only that client can start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mcp_optimizer.config.textfiles.checked_values import UnusableEntry, mapping, text_of
from mcp_optimizer.runtime.patterns import regex

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
"""Keys that several clients use, and ours for them."""
LEFT_OUT: Mapping[str, str] = {
    "autoApprove": ASKING,
    "alwaysAllow": ASKING,
    "name": SHOWN,
    "gallery": ELSEWHERE,
    "version": ELSEWHERE,
}
"""Keys of several clients that mean nothing here, and why."""

_OURS = regex(r"\$\{([^}]{0,1000})\}")
_NAME = regex(r"[A-Za-z_]\w*", re.ASCII)
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
    """A text in our spelling, given the values of editors' variables and the key that holds the text. Environment
    variables are never looked up, so references stay references. Raises UnusableEntry if there is no equivalent.
    """
    leaves_braces: bool = False
    """Whether `${...}` is plain text to the client."""
    is_bare: bool = False
    """Whether `$VAR` is a variable, too."""


BRACES = VariableSpelling(_with_values)
"""`${X}`, `${env:X}`, `${input:x}`, `${userHome}`, `${workspaceFolder}`."""
NO_VARIABLES = VariableSpelling(_as_it_is, leaves_braces=True)


class EntryReading(NamedTuple):
    """How a client writes entries."""

    variables: VariableSpelling = BRACES
    shape: Callable[[Entry], Entry] = dict
    """Flattens an entry, with our keys or those of `renamed`. Unused keys stay, so that they are reported later."""
    renamed: Mapping[str, str] = RENAMED
    left_out: Mapping[str, str] = LEFT_OUT
    """Known keys that mean nothing here, and why."""
    in_milliseconds: bool = False
    """Whether `timeout` is in milliseconds."""

    def spelled(self, value: Any, values: Mapping[str, str], where: str = "", level: int = 0) -> Any:
        """A value whose strings use our spelling of variables."""
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
    """Whether a value contains something in our spelling of variables."""
    if isinstance(value, str):
        return _OURS.search(value) is not None
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(has_variable(item) for item in items)


def with_names(entry: Entry, names: Mapping[str, str]) -> Entry:
    """The entry with some keys renamed, unless the new name is taken."""
    return {key if names.get(key) in entry else names.get(key, key): value for key, value in entry.items()}


def variable_name(value: Any, where: str) -> str:
    """The name of an environment variable. An invalid name is not quoted: it may be a misplaced secret."""
    if not _NAME.fullmatch(text_of(value, where)):
        raise UnusableEntry(f'"{where}" must be a list of names of environment variables')
    return str(value)


def with_environment(entry: Entry, names: list[str]) -> Entry:
    """The entry with variables that the client passes on by name, before those that it writes out.

    A client leaves out unset variables. Here an unset one is a problem with a name, not a server without its token.
    """
    return entry | {"env": {name: f"${{{name}}}" for name in names} | mapping(entry.get("env") or {}, "env")}


def value_at(document: Any, path: tuple[str, ...]) -> Any:
    """The value at these keys; None if there is none."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document
