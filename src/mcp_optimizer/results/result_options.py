"""The options for results: global, per server, per tool; the most specific wins. Read by the pipeline. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcp_optimizer.results.encodings import Encoding
from mcp_optimizer.results.limits import ResultLimits
from mcp_optimizer.runtime.lazy import lazy


@dataclass(frozen=True)
class Treatment:
    """How the results of one tool are handled."""

    max_rows: int = 1_000
    max_tokens: int = 10_000
    preview_tokens: int = 0
    """Maximum tokens shown of a result that exceeds `max_tokens`; 0 means as many as fit."""
    encoding: Encoding = Encoding.COMPACT
    cache_seconds: float = 0
    is_cached_by_name: bool = False
    """Whether the settings set a cache time for this tool by name, which counts whatever the tool declares."""

    @lazy
    def limits(self) -> ResultLimits:
        return ResultLimits(
            self.max_rows, self.max_tokens, preview_tokens=self.preview_tokens if self.max_tokens else 0
        )


@dataclass(frozen=True)
class ResultOptions:
    """The options for all results, with exceptions by server and by tool (name, or `server__tool`)."""

    everywhere: Treatment = field(default_factory=Treatment)
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    plain_meta: bool = False

    def of(self, server: str, tool: str) -> Treatment:
        if not self.servers and not self.tools:
            return self.everywhere
        of_tool = _given(self.tools.get(tool)) | _given(self.tools.get(f"{server}__{tool}"))
        changes = _given(self.servers.get(server)) | of_tool
        return replace(self.everywhere, **changes, is_cached_by_name="cache_seconds" in of_tool)

    @lazy
    def may_cache(self) -> bool:
        """Whether any result may be cached."""
        said = (*self.servers.values(), *self.tools.values())
        return bool(self.everywhere.cache_seconds) or any(_given(one).get("cache_seconds") for one in said)


def _given(said: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (said or {}).items() if value is not None}
