"""Learns what a server holds from the results of its own lists: the names of tables, boards, folders, repositories.

`results` reports every successful result; the gateway writes what is known into the one line about a server. A caller
sees only what its own calls returned, because names may be data of others. They are kept in memory for an hour, are few
and short, and what does not look like a name is left out: a server could write to models that way.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mcp_optimizer.runtime.patterns import regex

_CONTAINERS = frozenset(
    "accounts albums boards buckets calendars channels collections databases datasets drives environments folders "
    "indexes indices instances notebooks organizations playlists projects repositories repos schemas sites spaces "
    "tables teams views workspaces".split()
)
_VERBS = frozenset("list get show enumerate".split())
_FILLERS = frozenset("all my the available accessible visible user users".split())
_AFTER = frozenset("in of for by from with on".split())
_WORD = regex(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_KEYS = ("name", "title", "full_name", "table_name", "displayName", "display_name", "path", "key")
_NAME = regex(r"[\w/][\w .&@#/-]{0,39}")

_LONGEST_TOOL = 100
_MOST_WORDS = 4
"""Words of a name. More are a sentence."""

_MOST_NAMES = 12
_MOST_SHOWN = 120
"""Characters of the names of one kind."""

_MOST_KINDS = 3
_MOST_SERVERS = 50
_MOST_CALLERS = 1_000
_MOST_READ = 1_000
"""Elements of a list that are looked at."""

_DEEPEST = 3
_SECONDS = 3_600.0


@dataclass(frozen=True)
class _Listed:
    """What one list had."""

    names: tuple[str, ...]
    of: int
    """The number of all names."""
    at: float

    @property
    def shown(self) -> str:
        """As many names as fit, and the number of the others."""
        shown: list[str] = []
        for name in self.names:
            if shown and len(", ".join([*shown, name])) > _MOST_SHOWN:
                break
            shown.append(name)
        return ", ".join(shown) + (f" and {self.of - len(shown):,} more" if self.of > len(shown) else "")


_Held = Mapping[str, Mapping[str, _Listed]]
"""By server and kind."""

_NOTHING: Mapping[str, Any] = {}


class LearnedHoldings:
    """What each caller's calls returned of what servers hold."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: OrderedDict[str, _Held] = OrderedDict()
        """By caller. What is known of one is replaced and never changed, because searches read it in threads."""

    def learn(self, principal: str, server: str, tool: str, value: Callable[[], Any]) -> None:
        """Learn from a successful call. `value` returns the data in the result and is called only if the tool lists
        what its server holds.
        """
        kind = listed_by(tool)
        if not kind:
            return
        found = list(dict.fromkeys(_names_in(value())))
        before = self._of.get(principal, _NOTHING)
        listed = _Listed(tuple(found[:_MOST_NAMES]), len(found), self._clock()) if found else None
        kinds = _with_newest(before.get(server, _NOTHING), kind, listed, _MOST_KINDS)
        self._of[principal] = _with_newest(before, server, kinds, _MOST_SERVERS)
        self._of.move_to_end(principal)
        while len(self._of) > _MOST_CALLERS:
            self._of.popitem(last=False)

    def told(self, principal: str, server: str) -> str:
        """What is known of a server, in a few words: `tables: trips, drivers`."""
        since = self._clock() - _SECONDS
        kinds: Mapping[str, _Listed] = self._of.get(principal, _NOTHING).get(server, _NOTHING)
        return "; ".join(f"{kind}: {listed.shown}" for kind, listed in kinds.items() if listed.at > since)


def listed_by(tool: str) -> str:
    """What a tool lists, by its name: `tables` for `list_tables`; "" if it is no list of what a server holds."""
    words: list[str] = [word.lower() for word in _WORD.findall(tool[:_LONGEST_TOOL])]
    verb = next((at for at, word in enumerate(words) if word in _VERBS), None)
    if verb is None:
        return ""
    said = [word for word in words[verb + 1 :] if word not in _FILLERS]
    if not said or said[0] not in _CONTAINERS or (said[1:] and said[1] not in _AFTER):
        return ""
    return said[0]


def _with_newest(before: Mapping[str, Any], key: str, value: Any, most: int) -> dict[str, Any]:
    """A copy in which the key is the newest of at most so many; without the key if there is no value."""
    others = [(other, known) for other, known in before.items() if other != key]
    return dict(others) if value is None else {**dict(others[-(most - 1) :]), key: value}


def _names_in(value: Any) -> Iterator[str]:
    for element in islice(_elements(value, _DEEPEST), _MOST_READ):
        found = element if isinstance(element, str) else _name_of(element)
        if _NAME.fullmatch(found) and len(found.split()) <= _MOST_WORDS and found.isprintable():
            yield found


def _elements(value: Any, deepest: int) -> list[Any]:
    """The first list with elements that have names."""
    if isinstance(value, list):
        return value if any(isinstance(one, str) or _name_of(one) for one in value[:_MOST_READ]) else []
    if isinstance(value, dict) and deepest:
        for inner in islice(value.values(), _MOST_READ):
            if found := _elements(inner, deepest - 1):
                return found
    return []


def _name_of(element: Any) -> str:
    if not isinstance(element, dict):
        return ""
    return next((found for key in _KEYS if isinstance(found := element.get(key), str)), "")
