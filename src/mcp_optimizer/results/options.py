"""How results are treated: everywhere, for one server, for one tool; the nearest that says something counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcp_optimizer.results.limits import Limits


@dataclass(frozen=True)
class Treatment:
    """How the results of one tool are treated."""

    max_rows: int = 1_000
    max_tokens: int = 20_000

    @property
    def limits(self) -> Limits:
        return Limits(self.max_rows, self.max_tokens)


@dataclass(frozen=True)
class ResultOptions:
    """How all results are treated, with exceptions by server and by tool (its name, or `server__tool`)."""

    everywhere: Treatment = field(default_factory=Treatment)
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    plain_meta: bool = False

    def of(self, server: str, tool: str) -> Treatment:
        if not self.servers and not self.tools:
            return self.everywhere
        said = (self.servers.get(server), self.tools.get(tool), self.tools.get(f"{server}__{tool}"))
        changes = {name: value for one in said if one for name, value in one.items() if value is not None}
        return replace(self.everywhere, **changes)
