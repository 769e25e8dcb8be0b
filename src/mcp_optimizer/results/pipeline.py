"""What happens to every result between its server and the model. Called by the gateway, whatever the road.

The only module of this room with effects: it looks at the clock, and works in a thread where a result is large.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.metadata import NOT_COUNTED, PerformanceInfo, ResponseMetadata, with_metadata
from mcp_optimizer.results.reading import Reading
from mcp_optimizer.token_counter import TokenCounter

_INLINE = 32 * 1024
"""Characters of text that are dealt with at once; more would hold up other calls, and goes to a thread."""

Ask = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class ResultOptions:
    """How results are described."""

    plain_meta: bool = False


class Results:
    """Asks for results, and says of each what it cost."""

    def __init__(self, estimator: Estimator, options: ResultOptions | None = None) -> None:
        self._estimator = estimator
        self._options = options or ResultOptions()

    @classmethod
    def plain(cls, counter: TokenCounter) -> Results:
        """With the defaults, and nothing kept."""
        return cls(Estimator("auto", counter))

    def warm_up(self) -> None:
        """Load what counts tokens, so that the first call does not wait for it."""
        self._estimator.estimate(["x"])

    async def answer(self, ask: Ask) -> dict[str, Any]:
        """Ask the server; its result, with what it cost."""
        started = time.perf_counter()
        result = await ask()
        return await self.described(result, started)

    async def described(self, result: dict[str, Any], started: float) -> dict[str, Any]:
        """The result with its metadata; `started` is when the call began, by `time.perf_counter`."""
        performance = PerformanceInfo(round((time.perf_counter() - started) * 1000))
        reading = Reading(result)
        is_large = reading.size > _INLINE
        metadata = await asyncio.to_thread(self._describe, reading) if is_large else self._describe(reading)
        return with_metadata(result, replace(metadata, performance=performance), plain=self._options.plain_meta)

    def _describe(self, reading: Reading) -> ResponseMetadata:
        tokens = self._estimator.estimate(reading.texts)
        if reading.has_uncounted:
            tokens = replace(tokens, warning=f"{tokens.warning}; {NOT_COUNTED}")
        data = reading.data()
        return ResponseMetadata(tokens=tokens, data=replace(data, truncated=False) if data else None)
