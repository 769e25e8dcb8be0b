"""What gateways that share a database exchange: announcements of changes, and their own addresses. Pure.

An announcement says that something changed, never the change itself. Anything that can write to the database can write
one, so an announcement that is not exactly as expected is ignored.
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
    """Something was written to these servers: data that was read from them may be out of date."""
    PROMOTED = "promoted"
    """A tool was registered after its first use."""
    COUNTED = "counted"
    """The usage counts of tools were updated."""
    KEYS = "keys"
    """A key was made or revoked."""
    APPROVED = "approved"
    """An approval decision was made about tools of these servers."""
    ENDED = "ended"
    """Clients ended the sessions with these hashes."""


@dataclass(frozen=True)
class Announcement:
    """One announcement of a change, from one gateway. Without names it concerns everything."""

    by: str
    news: ChangeKind
    names: tuple[str, ...] = ()

    def written(self) -> str:
        """The form in which it is sent; with too many or too long names, it concerns everything."""
        for names in (sorted(set(self.names))[: _MOST_NAMES + 1], []):
            body = json.dumps({"v": _VERSION, "by": self.by, "news": self.news.value, "names": names})
            if len(body) <= LONGEST and len(names) <= _MOST_NAMES:
                return body
        raise ValueError("the name of a gateway is too long")


def read_announcement(body: object) -> Announcement | None:
    """The announcement of another gateway; None if this version does not know it."""
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
    """One gateway process; it has another id after a restart."""

    id: str
    address: str
    """The address for other gateways, such as `http://10.0.0.7:8765`."""
    version: str
    started_at_ms: int
