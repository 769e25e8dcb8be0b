"""The metadata of a result, as it stands in `_meta`: what it cost, how long it took, how much data it holds.

Pure values. A part that does not apply is left out on the wire, never null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WARNING = "Actual tokens may vary by LLM tokenizer"
NOT_COUNTED = "images, audio and binary resources are not counted"


@dataclass(frozen=True)
class TokenInfo:
    """How many tokens a model pays for a result's text, and how that is known."""

    estimated: int
    approximation_method: str
    warning: str = WARNING


@dataclass(frozen=True)
class PerformanceInfo:
    """How long a call took, and whether the server was asked at all."""

    execution_time_ms: int
    cached_result: bool = False


@dataclass(frozen=True)
class DataInfo:
    """The table in a result, as far as there is one: the rows that it holds as it is returned."""

    row_count: int | None = None
    column_count: int | None = None
    truncated: bool | None = None
    max_rows_limit: int | None = None


@dataclass(frozen=True)
class CostInfo:
    """What a result costs as a model's input, in money."""

    model: str
    currency: str
    input: float


@dataclass(frozen=True)
class ResponseMetadata:
    """All that is said about a result."""

    tokens: TokenInfo | None = None
    performance: PerformanceInfo | None = None
    data: DataInfo | None = None
    cost: CostInfo | None = None

    def on_the_wire(self) -> dict[str, Any]:
        """The parts that apply, under the names that clients read."""
        parts = {name: getattr(self, name) for name in ("tokens", "performance", "data", "cost")}
        written = {name: _written(part) for name, part in parts.items() if part is not None}
        return {name: part for name, part in written.items() if part}


def _written(part: Any) -> dict[str, Any]:
    values = vars(part)
    return {_NAMES.get(name, name): value for name, value in values.items() if value is not None}


_NAMES = {
    "approximation_method": "approximationMethod",
    "execution_time_ms": "executionTimeMs",
    "cached_result": "cachedResult",
    "row_count": "rowCount",
    "column_count": "columnCount",
    "max_rows_limit": "maxRowsLimit",
}


def with_metadata(result: Mapping[str, Any], metadata: ResponseMetadata, *, plain: bool = False) -> dict[str, Any]:
    """The result with the metadata in its `_meta`, beside what the server put there; and as `meta`, if asked."""
    parts = metadata.on_the_wire()
    meta = result.get("_meta")
    written = {**result, "_meta": {**(meta if isinstance(meta, Mapping) else {}), **parts}}
    if plain:
        own = result.get("meta")
        written["meta"] = {**(own if isinstance(own, Mapping) else {}), **parts}
    return written
