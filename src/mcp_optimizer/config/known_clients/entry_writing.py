"""How a client spells our own entry: a command to start, or the address of a gateway that runs.

Values and pure functions. A key is never written: only the name of a variable, where the client can refer to one.
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
    """The environment variable of the client that holds its key."""
    variables: tuple[str, ...] = ()
    """Variables of the environment that the server file uses."""


def _passes_all(_variables: tuple[str, ...]) -> dict[str, Any]:
    return {}


class EntryWriting(NamedTuple):
    """A client's spelling of our entry. One that differs in more than names has a function of its own."""

    types: tuple[str, str] | None = None
    """What `type` says for a command and for a URL, if the entry has to say it."""
    type_key: str = "type"
    beginning: Mapping[str, Any] = _NONE
    """What each entry says first."""
    in_list: bool = False
    """Whether entries are items of a list, with their names inside."""
    url_key: str = "url"
    reference: str = ""
    """How a header refers to a variable of the environment, with `%s` for its name; "": it cannot."""
    bearer_key: str = ""
    """The key that names the variable with a token, if there is one."""
    passed_on: Callable[[tuple[str, ...]], dict[str, Any]] = _passes_all
    """What an entry says so that a server gets these variables; nothing where the client passes all on."""
    keeps_variables: bool = False
    """Whether it starts servers with a handful of variables, and cannot refer to others."""
    switches: Mapping[str, Any] = _NONE
    """What keeps our few tools in view: behind a client's own search, a search would have to be searched for."""
    only_commands: bool = False
    local: Callable[[OurGateway, str], dict[str, Any]] | None = None
    """The whole entry with a command, given its name."""
    remote: Callable[[OurGateway, str, dict[str, str]], dict[str, Any]] | None = None
    """The whole entry with a URL, given its name and headers."""

    def entry(self, gateway: OurGateway, name: str) -> dict[str, Any]:
        """Our entry. Raises NotForThisClient."""
        return self._remote(gateway, name) if gateway.url else self._local(gateway, name)

    def missing(self, gateway: OurGateway) -> tuple[str, ...]:
        """Variables that the server file uses and the client keeps to itself."""
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
        """How an entry begins. `transport`: 0 for a command, 1 for a URL."""
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
    """The commands by which a client adds and removes a server itself, as lists of words. They are run elsewhere."""

    adding: Callable[[str, Mapping[str, Any], OurGateway], list[str]] | None = None
    """The command that adds our entry for the user, given its name; empty if it cannot add such an entry."""
    removing: tuple[str, ...] = ()
    """What stands before the name in the command that removes it."""

    def to_add(self, name: str, entry: Mapping[str, Any], gateway: OurGateway) -> list[str]:
        return self.adding(name, entry, gateway) if self.adding is not None else []

    def to_remove(self, name: str) -> list[str]:
        return [*self.removing, name] if self.removing else []
