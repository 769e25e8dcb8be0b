"""How a client spells our own entry: a command to start, or the address of a running gateway.

Values and pure functions. A key's value is never written: only a variable's name, where the client can refer to one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

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
