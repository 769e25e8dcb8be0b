"""Learns from results which keys a server's tool returns, by the hash of its definition. Keeps no value of a result.

`results` reports every successful result; the gateway asks for shapes. A caller that can make a tool return chosen keys
could write to other callers' models that way, so a caller sees the keys of its own results, and of other results only
keys that several callers have seen, each in its own. Only the first few results of a tool are examined. What was
learned is stored in the background; if the database fails, only that is lost.
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
"""Results after which learning about a tool ends."""

_ALL = 20
"""Results after which learning ends even if some list was always empty."""

_MOST_SEEN = 500
"""Maximum tools whose complete observed shape is in memory."""

_SEVERAL = 3
"""Callers that must have seen a key before it is shown to other callers."""

_COMPARED = 32
"""Maximum callers whose shapes of a tool are compared for that: the most recent ones."""

_SHARE = 10
"""Divisor: the share of all remembered tools that one caller may take, except the local user."""

_LONGEST = 20_000
"""Maximum characters of a shape that is kept; a longer one is useless to a model."""


class ShapeStore(Protocol):
    """Stores shapes, each with the number of results it was learned from."""

    async def read(self, most: int) -> dict[str, tuple[int, str]]: ...
    async def write(self, shapes: Mapping[str, tuple[int, str]], most: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Learned:
    """What was learned about one tool, as text, because few of thousands are ever asked for."""

    results: int = 0
    """Number of results it was learned from; `_ALL` once enough were seen."""
    text: str = ""


class LearnedShapes:
    """The shapes of one catalog. `most`: maximum remembered pairs of tool and caller."""

    def __init__(self, stored: Callable[[], Awaitable[ShapeStore | None]], most: int) -> None:
        self._stored = stored
        self._most = most
        self._learned: OrderedDict[str, _Learned] = OrderedDict()
        # The complete shapes of tools still being learned, including keys that may be data. Never stored.
        self._seen: OrderedDict[str, Shape] = OrderedDict()
        self._of_tool: dict[str, dict[str, None]] = {}
        self._of_caller: dict[str, OrderedDict[str, None]] = {}
        self._common: dict[str, Shape] = {}
        self._changed: set[str] = set()
        self._unwritten: set[str] = set()
        self._writing = BackgroundTasks(logger, "Cannot write the shapes of results")

    async def start(self) -> None:
        """Read what was learned before; without a database, new shapes are lost when the gateway stops."""
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
        """Write the last changes."""
        await self._writing.settled()
        await self._write()

    def of(self, key: str) -> Shape | None:
        """The shape of a tool's results for the caller in the `shape_key`: from the caller's own results, otherwise the
        keys that several other callers have seen.
        """
        own = self._own(key)
        return own if own is not None and own.has_names else self._of_several(_tool_of(key)) or own

    def _own(self, key: str) -> Shape | None:
        if (seen := self._seen.get(key)) is not None:
            return without_data(seen)
        learned = self._learned.get(key)
        return _read(learned.text) if learned is not None else None

    def _of_several(self, tool: str) -> Shape | None:
        """The shape that several callers have seen. Computed on demand and cached until more is learned of the tool."""
        callers = list(self._of_tool.get(tool, ()))
        if len(callers) < _SEVERAL:
            return None
        if (known := self._common.get(tool)) is None:
            shapes = [shape for key in callers[-_COMPARED:] if (shape := self._own(key)) is not None]
            known = self._common[tool] = common(shapes, _SEVERAL)
        return known if known.has_names else None

    def learn(self, key: str, value: Callable[[], Any]) -> None:
        """Learn from a successful call. `key`: the `shape_key` of the tool and the caller. `value` returns the parsed
        JSON of the result and is called only if needed.
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
        """Index a key by its tool and by its caller, as the newest of both."""
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
        """Convert changed shapes to text, in the background because it takes time, and store them."""
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
    """The caller's part of a key; empty for the local user."""
    return key.partition(".")[2]


def _text(seen: Shape) -> str:
    text = to_text(without_data(seen))
    return text if len(text) <= _LONGEST else ""


@lru_cache(maxsize=1_024)
def _read(text: str) -> Shape | None:
    return from_text(text) if text else None


def shape_text(server: str, definition: Definition, learned: LearnedShapes | None, principal: str) -> str:
    """What a tool returns to a principal, by its output schema and, where that says too little, by results; "" if
    unknown.
    """
    found = learned.of(shape_key(server, definition.definition_hash, principal)) if learned is not None else None
    if found is not None and has_envelope(definition):
        found = without_envelope(found)
    return described(_declared(definition), found)


@lru_cache(maxsize=1_024)
def has_envelope(definition: Definition) -> bool:
    """Whether a tool declares that it wraps its value in an object. Shapes and scripts then use the inner value;
    without the declaration, an object with a key `result` may itself be the value.
    """
    return is_envelope(definition.details.output_schema)


@lru_cache(maxsize=1_024)
def _declared(definition: Definition) -> Shape | None:
    return shape_of_schema(definition.details.output_schema)
