"""Events grouped by something, the most frequent first. Pure; called by reports and advice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from mcp_optimizer.domain.events import Event, EventKind, ToolKey

_Key = TypeVar("_Key", EventKind, str, ToolKey)


def grouped(events: Iterable[Event], key: Callable[[Event], _Key]) -> list[tuple[_Key, list[Event]]]:
    """Events by a key; groups of one size by their keys, so that the order is always the same."""
    groups: dict[_Key, list[Event]] = defaultdict(list)
    for event in events:
        groups[key(event)].append(event)
    return sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def tool_key(event: Event) -> ToolKey:
    return (event.server, event.tool)
