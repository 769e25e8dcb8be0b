"""Learns what a search should find: which of its tools was then called, by the same caller, with which optional
parameters, and what a server holds.

The gateway reports searches and calls and asks for a prior; the counts are stored in the background. Only keyed hashes
and counts are kept, never texts or values. The prior decides only between nearly equal matches: its cap is well
below the difference between a better and a worse match.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.search.lexical import Floats

logger = logging.getLogger(__name__)


# Learns what a server holds from the results of its own lists: the names of tables, boards, folders, repositories.
# `results` reports every successful result; the gateway writes what is known into the one line about a server. A
# caller sees only what its own calls returned, because names may be data of others. They are kept in memory for an
# hour, are few and short, and what does not look like a name is left out: a server could write to models that way.

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
_MOST_HOLDERS = 1_000
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
        while len(self._of) > _MOST_HOLDERS:
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


MOST_PRIOR: Final = 0.03
"""Maximum that use adds to a score, in which a cosine counts up to 1: decides only between nearly equal matches."""

MOST_TERMS: Final = 12
_MOST_COUNT: Final = 1_000
_LEAST_USUAL: Final = 2
"""Calls with a parameter from which on it is usual."""

_DOUBT: Final = 3.0
"""Calls of other tools that are assumed for each term, because a single call proves little."""


class UseTable:
    """Counts by term and tool, both as keyed hashes only. Keeps at most `most` pairs and forgets the rarest."""

    def __init__(self, salt: bytes, most: int, counts: Mapping[tuple[str, str], int] | None = None) -> None:
        self._salt = salt
        self._most = most
        self._counts: dict[str, dict[str, int]] = {}
        self._pairs = 0
        for (term, tool), count in (counts or {}).items():
            self._add(term, tool, count)

    def hashed(self, text: str) -> str:
        """The keyed hash of a term or a tool."""
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=8).hexdigest()

    def tool(self, server: str, name: str) -> str:
        """The keyed hash of a server's tool."""
        return self.hashed(f"{server}\0{name}")

    def count(self, terms: Iterable[str], tool: str) -> dict[tuple[str, str], int]:
        """Count one call of a tool after a search with these terms; returns the changed pairs with their counts."""
        changed: dict[tuple[str, str], int] = {}
        for term in list(dict.fromkeys(terms))[:MOST_TERMS]:
            hashed = self.hashed(term)
            self._add(hashed, tool, 1)
            changed[hashed, tool] = self._counts[hashed][tool]
        if self._pairs > self._most:
            self._forget()
        return changed

    def prior(self, terms: Iterable[str], tools: Sequence[tuple[str, str]]) -> Floats | None:
        """The prior of each of these tools (server and name), from 0 to `MOST_PRIOR`; None if no term is known."""
        known = [self._counts.get(self.hashed(term)) for term in list(dict.fromkeys(terms))[:MOST_TERMS]]
        if not any(known):
            return None
        hashes = [self.tool(server, name) for server, name in tools]
        shares = np.zeros((len(known), len(tools)), dtype=np.float32)
        for row, counts in enumerate(known):
            if counts:
                total = sum(counts.values()) + _DOUBT
                shares[row] = [counts.get(tool, 0) / total for tool in hashes]
        prior: Floats = np.float32(MOST_PRIOR) * shares.mean(axis=0)
        return prior

    def usual(self, parameters: Iterable[str], tool: str) -> list[str]:
        """Those of these parameters of a tool that calls had more than once, the most frequent first."""
        counted = [
            (-count, name)
            for name in parameters
            if (count := self._counts.get(self.hashed(_as_term(name)), {}).get(tool, 0)) >= _LEAST_USUAL
        ]
        return [name for _, name in sorted(counted, key=lambda pair: pair[0])]

    def _add(self, term: str, tool: str, count: int) -> None:
        tools = self._counts.setdefault(term, {})
        self._pairs += tool not in tools
        tools[tool] = min(tools.get(tool, 0) + count, _MOST_COUNT)

    def _forget(self) -> None:
        """Drop the rarer half of the pairs. Pairs that occur again are soon counted again."""
        ordered = sorted(((count, term, tool) for term, tools in self._counts.items() for tool, count in tools.items()))
        self._counts, self._pairs = {}, 0
        for count, term, tool in ordered[len(ordered) // 2 :]:
            self._add(term, tool, count)


def _as_term(parameter: str) -> str:
    """A parameter among terms. A term has no space."""
    return f"parameter {parameter}"


_REMEMBERED = 600.0
"""Seconds after a search within which a call is attributed to it."""

_MOST_SEARCHERS = 256


class UseStore(Protocol):
    """Stores the counts and the salt of their hashes."""

    async def read(self) -> tuple[bytes, dict[tuple[str, str], int]]: ...
    async def write(self, counts: dict[tuple[str, str], int], most: int) -> None: ...


@dataclass(frozen=True)
class _Search:
    terms: tuple[str, ...]
    tools: frozenset[tuple[str, str]]
    at: float


class LearnedUse:
    """The counts of one catalog, and each caller's last search. `most`: maximum pairs that are kept."""

    def __init__(self, stored: Callable[[], Awaitable[UseStore | None]], most: int) -> None:
        self._stored = stored
        self._most = most
        self._table: UseTable | None = None
        self._searches: OrderedDict[str, _Search] = OrderedDict()
        self._changed: dict[tuple[str, str], int] = {}
        self._writing = BackgroundTasks(logger, "Cannot write the counts of use")

    async def start(self) -> None:
        """Read what was learned before; without a database, new counts are lost when the gateway stops."""
        try:
            stored = await self._stored()
            salt, counts = await stored.read() if stored is not None else (secrets.token_bytes(16), {})
        except CatalogError as error:
            logger.warning("The counts of use cannot be read: %s", error)
            salt, counts = secrets.token_bytes(16), {}
        self._table = UseTable(salt, self._most, counts)

    async def stop(self) -> None:
        """Write the last changes."""
        await self._writing.settled()
        await self._write()

    def prior(self, terms: Sequence[str], tools: Sequence[tuple[str, str]]) -> Floats | None:
        """The prior of these tools for a search with these terms; None if nothing is known."""
        return self._table.prior(terms, tools) if self._table is not None else None

    def searched(self, caller: str, terms: Sequence[str], tools: Sequence[tuple[str, str]]) -> None:
        """Remember the terms of a caller's search and the tools it returned."""
        self._searches.pop(caller, None)
        self._searches[caller] = _Search(tuple(terms), frozenset(tools), time.monotonic())
        while len(self._searches) > _MOST_SEARCHERS:
            self._searches.popitem(last=False)

    def usual(self, server: str, name: str, parameters: Iterable[str]) -> list[str]:
        """Those of these parameters of a tool that earlier calls had, the most frequent first."""
        return self._table.usual(parameters, self._table.tool(server, name)) if self._table is not None else []

    def called(self, caller: str, server: str, name: str, parameters: Iterable[str] = ()) -> None:
        """Count a successful call, and those of the tool's optional parameters that it had, if the caller's last search
        returned the tool.
        """
        search = self._searches.get(caller)
        is_recent = search is not None and time.monotonic() - search.at < _REMEMBERED
        if self._table is None or search is None or not is_recent or (server, name) not in search.tools:
            return
        # Count once per search: twenty calls in a loop are one choice.
        del self._searches[caller]
        tool = self._table.tool(server, name)
        self._changed |= self._table.count(search.terms, tool)
        self._changed |= self._table.count(map(_as_term, parameters), tool)
        if not self._writing:
            self._writing.spawn(self._write())

    async def _write(self) -> None:
        changed, self._changed = self._changed, {}
        if not changed:
            return
        try:
            if (stored := await self._stored()) is not None:
                await stored.write(changed, self._most)
        except CatalogError as error:
            logger.warning("The counts of use cannot be written: %s", error)
