"""One tool call: the tool, the caller, what the tool declares, and the options for its result. Values; built by the
gateway, read by `pipeline` and the modules it calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.extensions import ANSWERS
from mcp_optimizer.domain.tools import shape_key
from mcp_optimizer.results.cache import CacheKey
from mcp_optimizer.results.encodings import Encoding
from mcp_optimizer.results.limits import ResultLimits
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.tool_limits import AskedLimits, Extent, ShownRows, asked_of, extent_of
from mcp_optimizer.runtime.lazy import lazy

# The options for results: global, per server, per tool; the most specific wins.


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


@dataclass(frozen=True)
class Call:
    """One tool call: the tool, the caller, the arguments, and what the tool declares."""

    server: str
    tool: str
    caller: Caller = LOCAL
    select: Projection | None = None
    definition_hash: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    seconds_before: float = 0.0
    """Seconds the server had worked before it asked the question that this call answers."""
    is_whole: bool = False
    """Whether the result goes to a program, which needs the complete result."""
    input_schema: Mapping[str, Any] | None = None
    extent: Extent | None = None
    """If the result is part of another one: whether the tool cut that other result."""

    @property
    def shape_key(self) -> str:
        """The key under which the shape of this tool's results for this caller is learned."""
        return shape_key(self.server, self.definition_hash, self.caller.principal.id)

    @property
    def reads(self) -> bool:
        """Whether the tool declares that it changes nothing."""
        return self.annotations.get("readOnlyHint") is True

    @property
    def only_reads(self) -> bool:
        """Whether it also declares that it reads only its server's own data, which is not the protocol's default."""
        return self.reads and self.annotations.get("openWorldHint") is False

    @lazy
    def asked(self) -> AskedLimits:
        """The limits that the arguments and the input schema set."""
        return asked_of(self.arguments, self.input_schema)

    def judge(self, around: ShownRows) -> Extent:
        """Whether the tool cut the result that shows these rows."""
        extent = extent_of(around, self.asked) if self.extent is None else self.extent
        return replace(extent, is_told=False) if extent.is_told and self.is_whole else extent

    @property
    def has_answers(self) -> bool:
        """Whether the call carries answers to a server's question; the result depends on them."""
        return any(answer in self.caller.passed_on for answer in ANSWERS)

    @property
    def cache_key(self) -> CacheKey:
        # A null character cannot be an expression, so a whole result has a key of its own.
        select = self.select.expression if self.select is not None else "\0" * self.is_whole
        hashed = self.definition_hash
        return CacheKey.of(self.caller.key, self.server, self.tool, hashed, self.arguments, select)


OF_NO_TOOL = Call("", "")
"""A placeholder for results to which only metadata is added."""
