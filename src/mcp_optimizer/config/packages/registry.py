"""Asks an MCP registry (API v0.1) which servers it has, and turns the server.json of one into drafts. Called by
commands.

A registry can send anything: replies are bounded, lists end, and invalid servers are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlencode

from mcp_optimizer.config.packages.commands import RUNTIMES, Package, PackageKind, with_command
from mcp_optimizer.config.packages.draft import (
    Argument,
    Draft,
    Gap,
    InputFormat,
    Pieces,
    WantedInput,
    clean,
    described,
    environment_name,
    header_name,
    items,
    suggested_name,
    wanted_of,
    warnings_of,
)
from mcp_optimizer.config.packages.fetching import SourceUnanswered, checked_address, fetched_json, is_near
from mcp_optimizer.errors import ConfigurationError, quoted
from mcp_optimizer.runtime.patterns import regex

# Reads a registry's server.json (2025-12-11) into drafts: its packages and its remote addresses. Written by third
# parties: every text passes the checks of `draft`, every package passes `commands`.

REMOTE = "remote"
"""The name by which `--package` chooses a server that runs elsewhere."""

_GAP = regex(r"\{([A-Za-z0-9_.-]{1,200})\}")
_VARIABLE_OF_A_CONTAINER = regex(r"([A-Za-z_][A-Za-z0-9_]*)=")
_TRANSPORTS = {"streamable-http": "http", "http": "http", "sse": "sse"}
_VALUED = frozenset(
    "value default choices isRequired valueHint placeholder format isSecret isRepeated variables".split()
)
"""Keys that give a named argument a value; an argument without any is only its name."""
_SHA256 = regex(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class BundleAt:
    """A bundle to download, and its SHA-256."""

    url: str
    sha256: str


class _Reading:
    """Collects the inputs of one package or address."""

    def __init__(self) -> None:
        self.wanted: dict[str, WantedInput] = {}

    def gap(self, key: str, said: Mapping[str, Any], *, is_required: bool = False) -> Gap:
        one = wanted_of(key, said, is_required=is_required)
        named, number = one.key, 1
        while self.wanted.get(one.key, one) != one:
            # Another input has the same name.
            number += 1
            one = replace(one, key=f"{named}_{number}")
        self.wanted[one.key] = one
        return Gap(one.key)

    def pieces(self, said: Mapping[str, Any], key: str, what: str) -> Pieces:
        """A fixed value, perhaps with variables in it, or a gap for the user's answer."""
        if (value := said.get("value")) is None:
            return (self.gap(key, said),)
        return self.filled(clean(value, what), said.get("variables"), is_required=said.get("isRequired") is True)

    def filled(self, text: str, variables: Any, *, is_required: bool) -> Pieces:
        known = variables if isinstance(variables, dict) else {}
        found: list[str | Gap] = []
        at = 0
        for match in _GAP.finditer(text):
            if isinstance(said := known.get(match[1]), dict):
                found += [text[at : match.start()], self.gap(match[1], said, is_required=is_required)]
                at = match.end()
        return tuple(piece for piece in (*found, text[at:]) if piece != "")


def ways_to_run(document: Mapping[str, Any]) -> list[str]:
    """The choices for `--package`, in the author's order."""
    kinds = [str(one.get("registryType", "")) for one in items(document, "packages", "the server")]
    remotes = [REMOTE] if items(document, "remotes", "the server") else []
    return list(dict.fromkeys([*kinds, *remotes]))


def draft_of(
    document: Mapping[str, Any], wanted: str, programs: Collection[str], *, runs_anything: bool = False
) -> Draft | BundleAt:
    """The `wanted` way to run a server, or else the first that works with the installed programs."""
    name = clean(document.get("name"), "The name of the server", 400)
    packages = items(document, "packages", name)
    remotes = items(document, "remotes", name)
    known = [one for one in packages if one.get("registryType") in list(PackageKind)]
    chosen = [one for one in known if one["registryType"] == wanted] if wanted else _first_runnable(known, programs)
    if chosen:
        return _of_package(chosen[0], name, document, programs, runs_anything)
    if remotes and wanted in ("", REMOTE):
        return _of_remote(remotes, name, document)
    ways = ", ".join(ways_to_run(document)) or "none"
    raise ConfigurationError(
        f"{quoted(name)} cannot be run {f'as {wanted!r}' if wanted else 'here'}; ways to run it: {ways}."
    )


def _first_runnable(packages: list[Mapping[str, Any]], programs: Collection[str]) -> list[Mapping[str, Any]]:
    def is_runnable(one: Mapping[str, Any]) -> bool:
        return any(program in programs for program in RUNTIMES.get(PackageKind(one["registryType"]), ()))

    return [one for one in packages if is_runnable(one)] or packages


def _of_package(
    said: Mapping[str, Any], name: str, document: Mapping[str, Any], programs: Collection[str], runs_anything: bool
) -> Draft | BundleAt:
    kind = PackageKind(said["registryType"])
    identifier = clean(said.get("identifier"), "The name of the package", 500)
    transport = said.get("transport")
    if isinstance(transport, dict) and transport.get("type", "stdio") != "stdio":
        raise ConfigurationError(
            f"The package {quoted(identifier)} starts a server that listens at an address. Start it yourself, then add "
            "its address."
        )
    if kind is PackageKind.BUNDLE:
        return BundleAt(identifier, _sha256(said.get("fileSha256"), identifier))
    reading = _Reading()
    env = {environment_name(one.get("name")): one for one in items(said, "environmentVariables", name)}
    texts = {key: reading.pieces(one, key, f"The value of {key}") for key, one in env.items()}
    options = _arguments(said, "runtimeArguments", name, reading)
    if kind is PackageKind.OCI:
        options, moved = _without_values(options)
        texts |= moved
    package = Package(
        kind=kind,
        identifier=identifier,
        version=clean(said.get("version") or "", "The version of the package", 200),
        runtime=clean(said.get("runtimeHint") or "", "The runtime of the package", 100),
        runtime_arguments=options,
        arguments=_arguments(said, "packageArguments", name, reading),
    )
    draft = Draft(
        name=suggested_name(name),
        env=texts,
        wanted=reading.wanted,
        notes=warnings_of(texts),
        description=described(document.get("description")),
        is_foreign=True,
    )
    return with_command(draft, package, programs, runs_anything=runs_anything)


def _sha256(given: Any, identifier: str) -> str:
    if not isinstance(given, str) or not _SHA256.fullmatch(given):
        raise ConfigurationError(f"The registry gives no SHA-256 for {quoted(identifier)}, so it cannot be checked.")
    return given.lower()


def _arguments(said: Mapping[str, Any], key: str, name: str, reading: _Reading) -> tuple[Argument, ...]:
    of_runtime = key == "runtimeArguments"
    given = items(said, key, name)
    return tuple(_argument(one, number, reading, of_runtime=of_runtime) for number, one in enumerate(given, 1))


def _argument(said: Mapping[str, Any], number: int, reading: _Reading, *, of_runtime: bool) -> Argument:
    if said.get("type") == "positional":
        hint = said.get("valueHint")
        return Argument(
            reading.pieces(said, hint if isinstance(hint, str) and hint else f"argument_{number}", "An argument")
        )
    if said.get("type") != "named":
        raise ConfigurationError("An argument of the server has an unknown type; it must be positional or named.")
    flag = clean(said.get("name"), "The name of an argument", 200)
    if not flag or " " in flag:
        raise ConfigurationError(f"{quoted(flag)} is not the name of an argument.")
    if not _VALUED & said.keys() and (of_runtime or "description" not in said):
        return Argument(flag=flag)
    key = flag.lstrip("-") or flag
    is_switch = said.get("format") == InputFormat.BOOLEAN and said.get("value") is None
    return Argument(reading.pieces(said, key, f"The value of {flag}"), flag=flag, is_switch=is_switch)


def _without_values(options: tuple[Argument, ...]) -> tuple[tuple[Argument, ...], dict[str, Pieces]]:
    """A container's options without the values of variables: other users can see a command, but not its environment."""
    kept: list[Argument] = []
    moved: dict[str, Pieces] = {}
    for one in options:
        first = one.value[0] if one.value else ""
        match = _VARIABLE_OF_A_CONTAINER.match(first) if isinstance(first, str) else None
        if one.flag in ("-e", "--env") and match:
            rest = (str(first)[match.end() :], *one.value[1:])
            moved[environment_name(match[1])] = tuple(piece for piece in rest if piece != "")
        else:
            kept.append(one)
    return tuple(kept), moved


def _of_remote(remotes: list[Mapping[str, Any]], name: str, document: Mapping[str, Any]) -> Draft:
    usable = [one for one in remotes if one.get("type") in list(_TRANSPORTS)]
    # The newer transport first.
    usable.sort(key=lambda one: _TRANSPORTS[one["type"]] != "http")
    if not usable:
        raise ConfigurationError(f"{quoted(name)} is reached in no way that is known here.")
    said = usable[0]
    reading = _Reading()
    url = clean(said.get("url"), "The address of the server")
    # Variables are replaced by a placeholder that cannot change which host is checked.
    plain = _GAP.sub("x", url)
    checked_address(plain)
    headers = {header_name(one.get("name")): one for one in items(said, "headers", name)}
    notes = ("It is an address on this machine or in its network.",) if is_near(plain) else ()
    return Draft(
        name=suggested_name(name),
        url=reading.filled(url, said.get("variables"), is_required=True),
        headers={key: reading.pieces(one, key, f"The header {key}") for key, one in headers.items()},
        transport=_TRANSPORTS[said["type"]],
        wanted=reading.wanted,
        notes=notes,
        description=described(document.get("description")),
        is_foreign=True,
    )


PUBLIC_REGISTRY = "https://registry.modelcontextprotocol.io"

_META = "io.modelcontextprotocol.registry/official"
_PAGE = 100
_MOST_PAGES = 10
_LONGEST_CURSOR = 2_000
_LONGEST_NAME = 400
_NOT_FOUND = 404
_OK = 200


class ServerCondition(StrEnum):
    """The state that a registry gives for a server."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    DELETED = "deleted"


@dataclass(frozen=True)
class ListedServer:
    """A server of a registry. `document` is its server.json, unchecked."""

    name: str
    version: str
    condition: ServerCondition
    description: str = ""
    message: str = ""
    """Why it is deprecated or deleted."""
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Registry:
    """One registry, by its address."""

    def __init__(self, address: str = PUBLIC_REGISTRY) -> None:
        self._host = checked_address(address)
        self._base = address.split("?")[0].split("#")[0].rstrip("/")

    async def search(self, text: str, most: int = 30) -> list[ListedServer]:
        """The newest versions of servers whose name contains the text."""
        found: dict[str, ListedServer] = {}
        cursors = {""}
        cursor = ""
        for _ in range(_MOST_PAGES):
            asked = {"search": text, "limit": min(most, _PAGE), "version": "latest"} | (
                {"cursor": cursor} if cursor else {}
            )
            reply = await self._object(f"/v0.1/servers?{urlencode(asked)}")
            for item in _list(reply.get("servers"))[:_PAGE]:
                if (server := listed_server(item)) is not None:
                    found.setdefault(server.name, server)
            cursor = _cursor(reply)
            if len(found) >= most or cursor in cursors:
                break
            cursors.add(cursor)
        return list(found.values())[:most]

    async def server(self, name: str, version: str = "") -> ListedServer:
        """One server, in its newest or the given version. A deleted one is returned and marked as deleted."""
        path = f"/v0.1/servers/{quote(name, safe='')}/versions/{quote(version or 'latest', safe='')}"
        status, reply = await fetched_json(self._base + path)
        if status == _NOT_FOUND:
            which = f" in version {version}" if version else ""
            raise ConfigurationError(
                f"{self._host} has no server {quoted(name)}{which}. Search with `mcp-optimizer registry search`."
            )
        found = listed_server(reply) if status == _OK else None
        if found is None or found.name != name or (version and found.version != version):
            raise SourceUnanswered(f"{self._host} does not answer as a registry does (HTTP status {status}).")
        return found

    async def _object(self, path: str) -> Mapping[str, Any]:
        status, reply = await fetched_json(self._base + path)
        if status != _OK or not isinstance(reply, dict):
            raise SourceUnanswered(f"{self._host} does not answer as a registry does (HTTP status {status}).")
        return reply


def listed_server(item: Any) -> ListedServer | None:
    """A server in a registry's format; None if it is invalid."""
    if not isinstance(item, dict) or not isinstance(document := item.get("server"), dict):
        return None
    name, version = document.get("name"), document.get("version")
    if not (_is_name(name) and _is_name(version)):
        return None
    meta = item.get("_meta")
    official = meta.get(_META) if isinstance(meta, dict) else None
    said = official if isinstance(official, dict) else {}
    status = said.get("status", document.get("status"))
    return ListedServer(
        name=str(name),
        version=str(version),
        condition=next((one for one in ServerCondition if one == status), ServerCondition.ACTIVE),
        description=described(document.get("description")),
        message=described(said.get("statusMessage")),
        document=document,
    )


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) <= _LONGEST_NAME and text.isprintable()


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _cursor(reply: Mapping[str, Any]) -> str:
    metadata = reply.get("metadata")
    found = metadata.get("nextCursor") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) and len(found) <= _LONGEST_CURSOR else ""
