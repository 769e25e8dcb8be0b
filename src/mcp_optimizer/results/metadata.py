"""The metadata of a result in `_meta`: its cost, duration and amount of data, and the price of tokens. Values.

A part that does not apply is omitted on the wire, never null. Used by the pipeline; does not know where prices come
from.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

RESERVED = "mcp-optimizer/"
"""The prefix of the gateway's own keys in `_meta`. A server's values under this prefix are dropped."""

_PARTS = ("tokens", "performance", "data", "cost")
"""Other keys that only the gateway may write into a tool's result."""

WARNING = "Actual tokens may vary by LLM tokenizer"
NOT_COUNTED = "images, audio and binary resources are not counted"


class TokenInfo(NamedTuple):
    """How many tokens a model pays for a result's text, and how they were determined."""

    estimated: int
    approximation_method: str
    warning: str = WARNING


class PerformanceInfo(NamedTuple):
    """How long a call took, and whether the server was asked."""

    execution_time_ms: int
    cached_result: bool = False

    @classmethod
    def since(cls, started: float) -> PerformanceInfo:
        """The time from `started`, a value of `time.perf_counter`, until now."""
        return cls(round((time.perf_counter() - started) * 1000))


@dataclass(frozen=True)
class DataInfo:
    """The table in a result, if any: its rows as returned."""

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


class ResponseMetadata(NamedTuple):
    """All metadata of a result. Every call makes one, so it and its usual parts are tuples, the cheapest to create."""

    tokens: TokenInfo | None = None
    performance: PerformanceInfo | None = None
    data: DataInfo | None = None
    cost: CostInfo | None = None

    def on_the_wire(self) -> dict[str, Any]:
        """The parts that apply, under the names that clients read."""
        tokens, performance, data, cost = self
        parts: dict[str, Any] = {}
        if tokens is not None:
            parts["tokens"] = {
                "estimated": tokens.estimated,
                "approximationMethod": tokens.approximation_method,
                "warning": tokens.warning,
            }
        if performance is not None:
            parts["performance"] = {
                "executionTimeMs": performance.execution_time_ms,
                "cachedResult": performance.cached_result,
            }
        if data is not None and (said := _said(data)):
            parts["data"] = said
        if cost is not None:
            parts["cost"] = {"model": cost.model, "currency": cost.currency, "input": cost.input}
        return parts


def _said(data: DataInfo) -> dict[str, Any]:
    every = {
        "rowCount": data.row_count,
        "columnCount": data.column_count,
        "truncated": data.truncated,
        "maxRowsLimit": data.max_rows_limit,
    }
    return {name: value for name, value in every.items() if value is not None}


def without_ours(result: dict[str, Any]) -> dict[str, Any]:
    """A server's result without the keys in `_meta` that are reserved for the gateway."""
    if "_meta" not in result:
        return result
    rest = dict(result)
    meta = rest.pop("_meta")
    # The protocol allows only an object as `_meta`.
    kept = _others(meta) if isinstance(meta, dict) else {}
    if kept or meta == {}:
        rest["_meta"] = kept
    return rest


def of_a_tool(result: dict[str, Any]) -> dict[str, Any]:
    """A tool's result without reserved keys, and without the parts that the gateway adds to `_meta` and `meta`."""
    if "_meta" not in result and "meta" not in result:
        return result
    result = without_ours(result)
    for key in ("_meta", "meta"):
        if isinstance(said := result.get(key), dict) and not said.keys().isdisjoint(_PARTS):
            others = {name: value for name, value in _others(said).items() if name not in _PARTS}
            result = {**result, key: others}
    return result


def _others(meta: dict[str, Any]) -> dict[str, Any]:
    for key in meta:
        if key.startswith(RESERVED):
            return {key: value for key, value in meta.items() if not key.startswith(RESERVED)}
    # The usual case: nothing to copy.
    return meta


def with_metadata(result: Mapping[str, Any], metadata: ResponseMetadata, *, plain: bool = False) -> dict[str, Any]:
    """The result with the metadata added to its `_meta`, and with `plain` also to its `meta`."""
    parts = metadata.on_the_wire()
    meta = result.get("_meta")
    written = {**result, "_meta": {**meta, **parts} if isinstance(meta, dict) else parts}
    if plain:
        own = result.get("meta")
        written["meta"] = {**own, **parts} if isinstance(own, dict) else parts
    return written


def with_meta(result: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The result with one more field in its `_meta`."""
    meta = result.get("_meta")
    return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), key: value}}


TOOL_META_KEY = "mcp-optimizer/tool"
"""The `_meta` key that names the tool and server that were called."""


def with_origin(result: dict[str, Any], server: str, tool: str, annotations: Any) -> dict[str, Any]:
    """The result of a tool, with the tool and its server."""
    origin = {"name": tool, "server": server} | ({"annotations": annotations} if annotations else {})
    return with_meta(result, TOOL_META_KEY, origin)


_MILLION = 1_000_000


@dataclass(frozen=True)
class Price:
    """The price of a million input tokens of a model."""

    model: str
    currency: str
    per_million: float

    def of(self, tokens: int) -> CostInfo:
        return CostInfo(self.model, self.currency, round(tokens * self.per_million / _MILLION, 8))
