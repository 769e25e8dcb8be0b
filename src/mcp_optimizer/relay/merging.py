"""One list from the lists of several servers, in which every name or URI is unique. Pure; called by the directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.domain.naming import ServerNames, ServerSchemes, public_names, public_uris
from mcp_optimizer.relay.listings import Listed, ListingKind
from mcp_optimizer.runtime.lazy import lazy

_TTL_MS = 60_000


@dataclass(frozen=True)
class DirectoryEntry:
    """One prompt, resource or template of a server."""

    server: str
    own: str
    public: str
    definition: dict[str, Any]


@dataclass(frozen=True)
class MergedList:
    """A complete list, and how long it may be cached."""

    entries: tuple[DirectoryEntry, ...]
    ttl_ms: int
    scope: str

    @lazy
    def by_public(self) -> Mapping[str, DirectoryEntry]:
        return {entry.public: entry for entry in self.entries}


@dataclass(frozen=True)
class Configured:
    """All servers of the server file, running or not."""

    names: ServerNames
    schemes: ServerSchemes


def put_together(listed: Mapping[str, Listed], kind: ListingKind, configured: Configured) -> MergedList:
    pairs = [(server, own) for server, one in listed.items() for own in one.entries]
    names = public_names(pairs, configured.names) if kind.is_named else public_uris(pairs, configured.schemes)
    entries = tuple(
        _entry(server, own, public, listed[server].entries[own], kind.identity)
        for (server, own), public in zip(pairs, names, strict=True)
    )
    is_public = bool(listed) and all(one.scope == "public" for one in listed.values())
    return MergedList(entries, least_ttl_ms(listed), "public" if is_public else "private")


def least_ttl_ms(listed: Mapping[str, Listed]) -> int:
    return min((one.ttl_ms for one in listed.values()), default=_TTL_MS)


def _entry(server: str, own: str, public: str, definition: dict[str, Any], identity: str) -> DirectoryEntry:
    return DirectoryEntry(server, own, public, definition if own == public else {**definition, identity: public})
