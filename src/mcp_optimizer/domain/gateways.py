"""What gateways that share a database know of each other: announcements of changes, and the gateways themselves. Pure.

An announcement says that something changed, never the thing itself. Anything that can write to the database can write
one, so one that is not exactly as expected says nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

_VERSION = 1
LONGEST = 4_000
"""Bytes of an announcement; PostgreSQL takes up to 8,000."""

_MOST_NAMES = 200


class ChangeKind(StrEnum):
    """What changed."""

    WRITTEN = "written"
    """Something was written to these servers: what was read from them may be out of date."""
    PROMOTED = "promoted"
    """A tool was registered after its first use."""
    COUNTED = "counted"
    """How often tools were used was counted anew."""
    KEYS = "keys"
    """A key was made or revoked."""
    APPROVED = "approved"
    """Somebody decided about tools of these servers that waited for approval."""
    ENDED = "ended"
    """Clients ended the sessions with these hashes."""


@dataclass(frozen=True)
class Announcement:
    """One piece of news, by one gateway. Without names it is about everything."""

    by: str
    news: ChangeKind
    names: tuple[str, ...] = ()

    def written(self) -> str:
        """As it is sent; with too many or too long names, it is about everything."""
        for names in (sorted(set(self.names))[: _MOST_NAMES + 1], []):
            body = json.dumps({"v": _VERSION, "by": self.by, "news": self.news.value, "names": names})
            if len(body) <= LONGEST and len(names) <= _MOST_NAMES:
                return body
        raise ValueError("the name of a gateway is too long")


def read_announcement(body: object) -> Announcement | None:
    """What another gateway announced; None if nothing that this version knows."""
    if not isinstance(body, str) or len(body) > LONGEST:
        return None
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("v") != _VERSION:
        return None
    by, news, names = said.get("by"), said.get("news"), said.get("names")
    if not isinstance(by, str) or not isinstance(news, str) or not isinstance(names, list):
        return None
    if news not in set(ChangeKind) or len(names) > _MOST_NAMES or not all(isinstance(name, str) for name in names):
        return None
    return Announcement(by, ChangeKind(news), tuple(names))


@dataclass(frozen=True)
class PeerGateway:
    """One process, in one life: after a restart it has another id."""

    id: str
    address: str
    """Where the others reach it, such as `http://10.0.0.7:8765`."""
    version: str
    started_at_ms: int
