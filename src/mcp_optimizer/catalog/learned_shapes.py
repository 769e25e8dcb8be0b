"""Learns from results which keys a server's tool returns, by the hash of its definition. Never a value of a result.

Told by `results` of every result that succeeded, and asked by the gateway. Whoever can make a tool return keys could
write to models that way, so a caller is shown what its own results had, and of others' only keys that several callers
have seen, each in its own. The first few results of a tool are looked at, the rest costs nothing. The database keeps
what was learned, in the background, and its failure costs only that.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

from mcp_optimizer.compression.shape_sources import is_envelope, shape_of_schema, shape_of_value
from mcp_optimizer.compression.shapes import (
    NOTHING,
    Shape,
    common,
    described,
    from_text,
    merged,
    to_text,
    without_data,
    without_envelope,
)
from mcp_optimizer.domain.tools import Definition, shape_key
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_ENOUGH = 5
"""Results after which nothing more is learned of a tool."""

_ALL = 20
"""Results after which nothing more is learned even if some list was always empty."""

_MOST_SEEN = 500
"""Tools of which everything that was seen is remembered at a time."""

_SEVERAL = 3
"""Callers that must have seen a key for all others to be shown it."""

_COMPARED = 32
"""Callers whose shapes of a tool are compared for that: those that called it last."""

_SHARE = 10
"""The part of all remembered tools that one caller may take, except the local user."""

_LONGEST = 20_000
"""Characters of a shape that is kept; a longer one is of no use."""


class ShapeStore(Protocol):
    """Where shapes are kept, with the number of results each was learned from."""

    async def read(self, most: int) -> dict[str, tuple[int, str]]: ...
    async def write(self, shapes: Mapping[str, tuple[int, str]], most: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Learned:
    """What may be said of one tool: as text, because few of thousands are ever asked for."""

    results: int = 0
    """From how many results it was learned; `_ALL` when enough was seen."""
    text: str = ""


class LearnedShapes:
    """The shapes of one catalog. `most`: tools that are remembered."""

    def __init__(self, stored: Callable[[], Awaitable[ShapeStore | None]], most: int) -> None:
        self._stored = stored
        self._most = most
        self._learned: OrderedDict[str, _Learned] = OrderedDict()
        # All that was seen of the tools of which more is to be learned, also keys that may be data. Never stored.
        self._seen: OrderedDict[str, Shape] = OrderedDict()
        self._of_tool: dict[str, dict[str, None]] = {}
        self._of_caller: dict[str, OrderedDict[str, None]] = {}
        self._common: dict[str, Shape] = {}
        self._changed: set[str] = set()
        self._unwritten: set[str] = set()
        self._writing = BackgroundTasks(logger, "Cannot write the shapes of results")

    async def start(self) -> None:
        """Read what was learned before; without a database, what is learned is forgotten at the end."""
        try:
            stored = await self._stored()
            known = await stored.read(self._most) if stored is not None else {}
        except CatalogError as error:
            logger.warning("The shapes of results cannot be read: %s", error)
            return
        for key, (results, text) in reversed(known.items()):
            if key not in self._learned and len(self._learned) < self._most:
                self._learned[key] = _Learned(results, text)
                self._learned.move_to_end(key, last=False)
                self._note(key)

    async def stop(self) -> None:
        """Write down the last of it."""
        await self._writing.settled()
        await self._write()

    def of(self, key: str) -> Shape | None:
        """What a tool's results look like, as far as several have shown: the caller's own, whose `shape_key` it is, or
        else what several other callers have seen.
        """
        own = self._own(key)
        return own if own is not None and own.has_names else self._of_several(_tool_of(key)) or own

    def _own(self, key: str) -> Shape | None:
        if (seen := self._seen.get(key)) is not None:
            return without_data(seen)
        learned = self._learned.get(key)
        return _read(learned.text) if learned is not None else None

    def _of_several(self, tool: str) -> Shape | None:
        """Made once after something was learned of a tool, and only if somebody asks who knows nothing of it."""
        callers = list(self._of_tool.get(tool, ()))
        if len(callers) < _SEVERAL:
            return None
        if (known := self._common.get(tool)) is None:
            shapes = [shape for key in callers[-_COMPARED:] if (shape := self._own(key)) is not None]
            known = self._common[tool] = common(shapes, _SEVERAL)
        return known if known.has_names else None

    def learn(self, key: str, value: Callable[[], Any]) -> None:
        """A call of a tool succeeded. `key`: the `shape_key` of the tool and the caller. `value`: the parsed JSON of
        its result, asked for only if it is needed.
        """
        known = self._learned.get(key, _Learned())
        if not key or known.results >= _ALL:
            return
        found = shape_of_value(value())
        if found == NOTHING:
            return
        before = self._seen.pop(key, None) or _read(known.text) or NOTHING
        seen = self._seen[key] = merged(before, found)
        is_over = known.results + 1 >= _ENOUGH and seen.is_complete
        self._learned[key] = _Learned(_ALL if is_over else known.results + 1, known.text)
        self._learned.move_to_end(key)
        self._note(key)
        self._changed.add(key)
        self._forget(_caller_of(key))
        if not self._writing:
            self._writing.spawn(self._write())

    def _note(self, key: str) -> None:
        """Whose it is, and of which tool."""
        tool = _tool_of(key)
        callers = self._of_tool.setdefault(tool, {})
        callers.pop(key, None)
        callers[key] = None
        own = self._of_caller.setdefault(_caller_of(key), OrderedDict())
        own[key] = None
        own.move_to_end(key)
        self._common.pop(tool, None)

    def _forget(self, caller: str) -> None:
        while len(self._seen) > _MOST_SEEN:
            key, seen = self._seen.popitem(last=False)
            self._learned[key] = replace(self._learned[key], text=_text(seen))
        own = self._of_caller[caller]
        while caller and len(own) > max(1, self._most // _SHARE):
            self._drop(next(iter(own)))
        while len(self._learned) > self._most:
            self._drop(next(iter(self._learned)))

    def _drop(self, key: str) -> None:
        tool, caller = _tool_of(key), _caller_of(key)
        del self._learned[key], self._of_tool[tool][key], self._of_caller[caller][key]
        if not self._of_tool[tool]:
            del self._of_tool[tool]
        if not self._of_caller[caller]:
            del self._of_caller[caller]
        self._seen.pop(key, None)
        self._common.pop(tool, None)
        self._changed.discard(key)

    async def _write(self) -> None:
        """Make the texts of what changed, which is not done while a caller waits, and store them."""
        changed, self._changed = self._changed, set()
        for key in changed & self._seen.keys():
            known = self._learned[key] = replace(self._learned[key], text=_text(self._seen[key]))
            if known.results >= _ALL:
                del self._seen[key]
        self._unwritten = (self._unwritten | changed) & self._learned.keys()
        shapes = {key: (self._learned[key].results, self._learned[key].text) for key in self._unwritten}
        try:
            if shapes and (stored := await self._stored()) is not None:
                await stored.write(shapes, self._most)
                self._unwritten -= shapes.keys()
        except CatalogError as error:
            logger.warning("The shapes of results cannot be written: %s", error)


def _tool_of(key: str) -> str:
    return key.partition(".")[0]


def _caller_of(key: str) -> str:
    """Empty for the local user."""
    return key.partition(".")[2]


def _text(seen: Shape) -> str:
    text = to_text(without_data(seen))
    return text if len(text) <= _LONGEST else ""


@lru_cache(maxsize=1_024)
def _read(text: str) -> Shape | None:
    return from_text(text) if text else None


def shape_text(server: str, definition: Definition, learned: LearnedShapes | None, principal: str) -> str:
    """What a tool returns to a principal, by its output schema and, where that says too little, by results; "" if
    nobody knows.
    """
    found = learned.of(shape_key(server, definition.definition_hash, principal)) if learned is not None else None
    if found is not None and has_envelope(definition):
        found = without_envelope(found)
    return described(_declared(definition), found)


@lru_cache(maxsize=1_024)
def has_envelope(definition: Definition) -> bool:
    """Whether a tool declares that it wraps what it returns. Its shape is that of the inside, and so is a script's
    value; of what a tool does not declare, an object with a key `result` may as well be the result.
    """
    return is_envelope(definition.details.output_schema)


@lru_cache(maxsize=1_024)
def _declared(definition: Definition) -> Shape | None:
    return shape_of_schema(definition.details.output_schema)
