"""Learns from results which keys a server's tool returns, by the hash of its definition. Never a value of a result.

Told by `results` of every result that succeeded, and asked by the gateway. The first few results of a tool are looked
at, the rest costs nothing. The database keeps what was learned, in the background, and its failure costs only that.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

from mcp_optimizer.compression.output_schemas import is_envelope, shape_of_schema
from mcp_optimizer.compression.result_shapes import shape_of_value
from mcp_optimizer.compression.shape_text import described
from mcp_optimizer.compression.shapes import NOTHING, Shape, from_text, merged, to_text, without_data, without_envelope
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
        for definition_hash, (results, text) in reversed(known.items()):
            if definition_hash not in self._learned and len(self._learned) < self._most:
                self._learned[definition_hash] = _Learned(results, text)
                self._learned.move_to_end(definition_hash, last=False)

    async def stop(self) -> None:
        """Write down the last of it."""
        await self._writing.settled()
        await self._write()

    def of(self, definition_hash: str) -> Shape | None:
        """What the results of a tool look like, as far as several of them have shown."""
        if (seen := self._seen.get(definition_hash)) is not None:
            return without_data(seen)
        learned = self._learned.get(definition_hash)
        return _read(learned.text) if learned is not None else None

    def learn(self, definition_hash: str, value: Callable[[], Any]) -> None:
        """A call of a tool succeeded. `value`: the parsed JSON of its result, asked for only if it is needed."""
        known = self._learned.get(definition_hash, _Learned())
        if not definition_hash or known.results >= _ALL:
            return
        found = shape_of_value(value())
        if found == NOTHING:
            return
        before = self._seen.pop(definition_hash, None) or _read(known.text) or NOTHING
        seen = self._seen[definition_hash] = merged(before, found)
        is_over = known.results + 1 >= _ENOUGH and seen.is_complete
        self._learned[definition_hash] = _Learned(_ALL if is_over else known.results + 1, known.text)
        self._learned.move_to_end(definition_hash)
        self._changed.add(definition_hash)
        self._forget()
        if not self._writing:
            self._writing.spawn(self._write())

    def _forget(self) -> None:
        while len(self._seen) > _MOST_SEEN:
            key, seen = self._seen.popitem(last=False)
            self._learned[key] = replace(self._learned[key], text=_text(seen))
        while len(self._learned) > self._most:
            key, _ = self._learned.popitem(last=False)
            self._seen.pop(key, None)
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


def _text(seen: Shape) -> str:
    text = to_text(without_data(seen))
    return text if len(text) <= _LONGEST else ""


@lru_cache(maxsize=1_024)
def _read(text: str) -> Shape | None:
    return from_text(text) if text else None


def shape_text(server: str, definition: Definition, learned: LearnedShapes | None) -> str:
    """What a tool returns, by its output schema and, where that says too little, by its results; "" if nobody knows."""
    found = learned.of(shape_key(server, definition.definition_hash)) if learned is not None else None
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
