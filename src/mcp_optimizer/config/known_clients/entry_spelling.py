"""How a client spells the entries of its servers, and how it spells ours. Values and pure functions.

`clients.importing` applies them; a client whose entries differ in more than names has a `shape` that flattens them and
raises UnusableEntry for servers that only that client can start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from mcp_optimizer.config.textfiles.checked_values import UnusableEntry, mapping, text_of
from mcp_optimizer.runtime.patterns import regex

# How a client writes the entries of its servers: its variables, its keys, and what concerns only the client. Values
# and pure functions. `clients.entries` applies them; a client whose entries differ in more than names has a `shape`
# that flattens them and raises UnusableEntry for servers that only that client can start.

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


# How a client spells our own entry: a command to start, or the address of a running gateway. Values and pure
# functions. A key's value is never written: only a variable's name, where the client can refer to one.

_NONE: Mapping[str, Any] = MappingProxyType({})


class NotForThisClient(ValueError):
    """The client cannot have such an entry. The message says what to do instead."""


class OurGateway(NamedTuple):
    """How a client reaches the gateway: by a command, or by a URL."""

    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    key_variable: str = ""
    """The client's environment variable that holds its key."""
    variables: tuple[str, ...] = ()
    """Environment variables that the server file uses."""


def _passes_all(_variables: tuple[str, ...]) -> dict[str, Any]:
    return {}


class EntryWriting(NamedTuple):
    """A client's spelling of our entry. An entry that differs in more than names has its own function."""

    types: tuple[str, str] | None = None
    """The values of `type` for a command and for a URL, if the client needs one."""
    type_key: str = "type"
    beginning: Mapping[str, Any] = _NONE
    """Keys at the start of every entry."""
    in_list: bool = False
    """Whether entries are list items that contain their names."""
    url_key: str = "url"
    reference: str = ""
    """How a header refers to an environment variable, with `%s` for its name; empty if it cannot."""
    bearer_key: str = ""
    """The key for the name of the variable with the token, if there is one."""
    passed_on: Callable[[tuple[str, ...]], dict[str, Any]] = _passes_all
    """How an entry passes these variables to a server; nothing for a client that passes all."""
    keeps_variables: bool = False
    """Whether it starts servers with only a few variables, and cannot refer to others."""
    switches: Mapping[str, Any] = _NONE
    """Keeps our few tools visible: behind a client's own search, our search would have to be searched for."""
    only_commands: bool = False
    local: Callable[[OurGateway, str], dict[str, Any]] | None = None
    """The whole entry with a command, given its name."""
    remote: Callable[[OurGateway, str, dict[str, str]], dict[str, Any]] | None = None
    """The whole entry with a URL, given its name and headers."""

    def entry(self, gateway: OurGateway, name: str) -> dict[str, Any]:
        """Our entry. Raises NotForThisClient."""
        return self._remote(gateway, name) if gateway.url else self._local(gateway, name)

    def missing(self, gateway: OurGateway) -> tuple[str, ...]:
        """Variables that the server file uses and the client does not pass on."""
        return gateway.variables if self.keeps_variables and not gateway.url else ()

    def _local(self, gateway: OurGateway, name: str) -> dict[str, Any]:
        if self.local is not None:
            return self.local(gateway, name)
        entry = self._start(name, 0) | {"command": gateway.command, "args": list(gateway.args)}
        return entry | self.passed_on(gateway.variables) | dict(self.switches)

    def _remote(self, gateway: OurGateway, name: str) -> dict[str, Any]:
        if self.only_commands:
            raise NotForThisClient("it starts its servers with a command; leave out --http")
        start = {**self._start(name, 1), self.url_key: gateway.url}
        if self.bearer_key:
            named = {self.bearer_key: gateway.key_variable} if gateway.key_variable else {}
            return start | dict(self.switches) | named
        headers = self._headers(gateway)
        if self.remote is not None:
            return self.remote(gateway, name, headers)
        return start | ({"headers": headers} if headers else {}) | dict(self.switches)

    def _start(self, name: str, transport: int) -> dict[str, Any]:
        """The first keys of an entry. `transport`: 0 for a command, 1 for a URL."""
        named = {"name": name} if self.in_list else {}
        typed = {self.type_key: self.types[transport]} if self.types else {}
        return {**named, **typed, **self.beginning}

    def _headers(self, gateway: OurGateway) -> dict[str, str]:
        if not gateway.key_variable:
            return {}
        if not self.reference:
            raise NotForThisClient(
                "it cannot read a key from a variable, and a key is not written into its file; connect it without "
                "--http"
            )
        return {"Authorization": "Bearer " + self.reference % gateway.key_variable}


class OwnCommands(NamedTuple):
    """A client's own commands to add and remove a server, as lists of words. They are run elsewhere."""

    adding: Callable[[str, Mapping[str, Any], OurGateway], list[str]] | None = None
    """The command that adds our entry for the user, given its name; empty if the client cannot add it."""
    removing: tuple[str, ...] = ()
    """The words before the name in the command that removes it."""

    def to_add(self, name: str, entry: Mapping[str, Any], gateway: OurGateway) -> list[str]:
        return self.adding(name, entry, gateway) if self.adding is not None else []

    def to_remove(self, name: str) -> list[str]:
        return [*self.removing, name] if self.removing else []
