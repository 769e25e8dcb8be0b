"""Records in the audit what somebody does on the dashboard. Called by the routes that change something."""

from __future__ import annotations

import time
from dataclasses import dataclass

from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.domain.audit import AuditEntry, Trail


@dataclass(frozen=True)
class Acts:
    """Where acts are recorded; without a trail, nowhere."""

    trail: Trail | None

    def record(self, visitor: Visitor, method: str, *, server: str = "", tool: str = "") -> None:
        """Something was done: `method` says what, such as `key/create`."""
        if self.trail is not None:
            who = visitor.principal
            entry = AuditEntry(time.time_ns() // 1_000_000, who.name, who.tenant, "dashboard")
            self.trail.add(entry._replace(method=method, server=server, tool=tool))
