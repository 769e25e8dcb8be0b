"""What was called, by whom, and what the tool declares. A value; made by the gateway, read by the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.result_type import ANSWERS
from mcp_optimizer.domain.tools import shape_key
from mcp_optimizer.results.cache import CacheKey
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.tool_limits import AskedLimits, Extent, ShownRows, asked_of, extent_of
from mcp_optimizer.runtime.lazy import lazy


@dataclass(frozen=True)
class Call:
    """What was called, by whom, and what the tool declares."""

    server: str
    tool: str
    caller: Caller = LOCAL
    select: Projection | None = None
    definition_hash: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    seconds_before: float = 0.0
    """Seconds the server had already worked before it asked the question that is answered now."""
    is_whole: bool = False
    """Whether the result goes to a program, which needs all of it."""
    input_schema: Mapping[str, Any] | None = None
    extent: Extent | None = None
    """Whether the tool cut the result of which this is a part, if it is one."""

    @property
    def shape_key(self) -> str:
        """The key of what the tool returns to this caller."""
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
        """What it says of limits."""
        return asked_of(self.arguments, self.input_schema)

    def judge(self, around: ShownRows) -> Extent:
        """Whether the tool cut the result that shows this."""
        extent = extent_of(around, self.asked) if self.extent is None else self.extent
        return replace(extent, is_told=False) if extent.is_told and self.is_whole else extent

    @property
    def has_answers(self) -> bool:
        """Whether it continues a call with answers to a server's question; the result depends on them."""
        return any(answer in self.caller.passed_on for answer in ANSWERS)

    @property
    def cache_key(self) -> CacheKey:
        # No expression is a null character.
        select = self.select.expression if self.select is not None else "\0" * self.is_whole
        hashed = self.definition_hash
        return CacheKey.of(self.caller.key, self.server, self.tool, hashed, self.arguments, select)


OF_NO_TOOL = Call("", "")
"""For results that are only described."""
