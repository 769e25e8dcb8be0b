"""Asks an MCP registry (API v0.1) which servers it has, and for the server.json of one. Called by commands.

A registry can send anything: replies are bounded, lists end, and invalid servers are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlencode

from mcp_optimizer.config.packages.fetching import SourceUnanswered, checked_address, fetched_json
from mcp_optimizer.config.packages.untrusted_text import described
from mcp_optimizer.errors import ConfigurationError, quoted

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
