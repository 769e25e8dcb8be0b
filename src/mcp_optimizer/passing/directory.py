"""The prompts, resources and resource templates of all running servers, under names that are unique.

A server that says when its lists change is asked once, the others every time. One that fails is left out, and
the others stay; only if all fail is that an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.shared.uri_template import UriTemplate

from mcp_optimizer.db.models import ServerStatus
from mcp_optimizer.errors import UpstreamError
from mcp_optimizer.naming import public_names, public_uris, uri_without_server, without_server
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

_MOST_PAGES = 1_000
_TTL_MS = 60_000
"""How long a list may be kept whose servers say when it changes."""

Call = Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Asks one server: its name, method, params."""


@dataclass(frozen=True)
class Kind:
    """One of the lists: how it is asked for, and what tells its entries apart."""

    method: str
    result_key: str
    capability: str
    identity: str

    @property
    def is_named(self) -> bool:
        """Whether entries have names, as tools do, or URIs."""
        return self.identity == "name"


PROMPTS = Kind("prompts/list", "prompts", "prompts", "name")
RESOURCES = Kind("resources/list", "resources", "resources", "uri")
TEMPLATES = Kind("resources/templates/list", "resourceTemplates", "resources", "uriTemplate")
KINDS = (PROMPTS, RESOURCES, TEMPLATES)


@dataclass(frozen=True)
class Entry:
    """One thing that a server has."""

    server: str
    own: str
    public: str
    definition: dict[str, Any]


@dataclass(frozen=True)
class Found:
    """A whole list, and how long it may be kept."""

    entries: tuple[Entry, ...]
    ttl_ms: int
    scope: str


@dataclass(frozen=True)
class _Fetched:
    entries: tuple[dict[str, Any], ...]
    ttl_ms: int
    scope: str


class Directory:
    """What the running servers list."""

    def __init__(self, states: Callable[[], Mapping[str, UpstreamState]], call: Call) -> None:
        self._states = states
        self._call = call
        self._kept: dict[tuple[str, str], _Fetched] = {}

    def forget(self, server: str, capability: str | None = None) -> None:
        """A server's lists are not what they were: those of one capability, or all."""
        for kind in KINDS:
            if capability in (None, kind.capability):
                self._kept.pop((server, kind.method), None)

    def providers(self, capability: str) -> list[str]:
        """The running servers that have such things, in the order in which they are always listed."""
        return sorted(
            name
            for name, state in self._states().items()
            if state.status is ServerStatus.RUNNING and state.capabilities.get(capability) is not None
        )

    async def listed(self, kind: Kind) -> Found:
        servers = self.providers(kind.capability)
        results = await asyncio.gather(*(self._of(server, kind) for server in servers), return_exceptions=True)
        fetched: list[tuple[str, _Fetched]] = []
        for server, result in zip(servers, results, strict=True):
            if isinstance(result, _Fetched):
                fetched.append((server, result))
            elif not isinstance(result, UpstreamError) or len(servers) == 1:
                raise result
            else:
                logger.warning("The %s of %s cannot be listed: %s", kind.result_key, server, result)
        if servers and not fetched:
            raise next(result for result in results if isinstance(result, UpstreamError))
        pairs = [(server, str(entry[kind.identity])) for server, one in fetched for entry in one.entries]
        names = iter(public_names(pairs) if kind.is_named else public_uris(pairs))
        entries = tuple(
            _entry(server, entry, next(names), kind.identity) for server, one in fetched for entry in one.entries
        )
        ttl_ms = min((one.ttl_ms for _, one in fetched), default=_TTL_MS)
        is_public = bool(fetched) and all(one.scope == "public" for _, one in fetched)
        return Found(entries, ttl_ms, "public" if is_public else "private")

    async def _of(self, server: str, kind: Kind) -> _Fetched:
        if (kept := self._kept.get((server, kind.method))) is not None:
            return kept
        fetched = await self._fetch(server, kind)
        if self._tells_changes(server, kind):
            self._kept[server, kind.method] = fetched
        return fetched

    def _tells_changes(self, server: str, kind: Kind) -> bool:
        state = self._states().get(server)
        return state is not None and bool((state.capabilities.get(kind.capability) or {}).get("listChanged"))

    async def _fetch(self, server: str, kind: Kind) -> _Fetched:
        entries: dict[str, dict[str, Any]] = {}
        params: dict[str, Any] = {}
        seen: set[str] = set()
        ttl_ms, scope = _TTL_MS if self._tells_changes(server, kind) else 0, "private"
        for _ in range(_MOST_PAGES):
            page = await self._call(server, kind.method, params)
            listed = page.get(kind.result_key)
            for entry in listed if isinstance(listed, list) else []:
                if isinstance(entry, dict) and isinstance(entry.get(kind.identity), str):
                    entries.setdefault(entry[kind.identity], entry)
            ttl_ms = page["ttlMs"] if isinstance(page.get("ttlMs"), int) else ttl_ms
            scope = str(page.get("cacheScope", scope))
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or cursor in seen:
                break
            seen.add(cursor)
            params = {"cursor": cursor}
        return _Fetched(tuple(entries.values()), max(0, ttl_ms), scope)

    async def prompt(self, name: str) -> tuple[str, str] | None:
        """The server and own name of a prompt; an unknown one may still be the only server's."""
        for entry in (await self.listed(PROMPTS)).entries:
            if entry.public == name:
                return entry.server, entry.own
        providers = self.providers(PROMPTS.capability)
        for server in providers:
            if (own := without_server(name, server)) is not None:
                return server, own
        return (providers[0], name) if len(providers) == 1 else None

    async def resource(self, uri: str) -> list[tuple[str, str]]:
        """Where a URI may be read, the likeliest first: server and own URI. Servers have more than they list."""
        providers = self.providers(RESOURCES.capability)
        if len(providers) == 1 and not uri_without_server(uri, providers):
            return [(providers[0], uri)]
        listed = [(e.server, e.own) for e in (await self.listed(RESOURCES)).entries if e.public == uri]
        if listed:
            return listed[:1]
        if (named := uri_without_server(uri, providers)) is not None:
            return [named]
        templates = (await self.listed(TEMPLATES)).entries
        fitting = [(entry.server, uri) for entry in templates if entry.public == uri or _fits(entry.own, uri)]
        return fitting or [(server, uri) for server in providers]

    async def template(self, uri: str) -> tuple[str, str] | None:
        """The server and own form of a template, or of a resource, for completing its arguments."""
        for entry in (await self.listed(TEMPLATES)).entries:
            if entry.public == uri:
                return entry.server, entry.own
        places = await self.resource(uri)
        return places[0] if places else None


def _entry(server: str, definition: dict[str, Any], public: str, identity: str) -> Entry:
    own = definition[identity]
    return Entry(server, own, public, definition if own == public else {**definition, identity: public})


def _fits(template: str, uri: str) -> bool:
    try:
        return UriTemplate.parse(template).match(uri) is not None
    except ValueError:
        return False
