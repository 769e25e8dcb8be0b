"""The person or program that looks at a page, and the audit record of what they change.

`reception` finds out who it is and `guard` hands it to the pages; the routes that change something record it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_optimizer.domain.audit import AuditEntry, Trail
from mcp_optimizer.domain.principal import Principal, Role

if TYPE_CHECKING:
    from starlette.requests import Request

VISITOR_KEY = "mcp_optimizer.visitor"


@dataclass(frozen=True)
class Visitor:
    """Somebody who was let in."""

    principal: Principal
    is_signed_in: bool = False
    """By the form, so that there is something to sign out of."""
    is_anybody: bool = False
    """Let in because the dashboard is open: any user of this machine."""

    @property
    def can_manage(self) -> bool:
        return self.principal.role.covers(Role.MANAGE)


def visitor_of(request: Request) -> Visitor:
    """Who sent a request that was let in."""
    visitor: Visitor = request.scope[VISITOR_KEY]
    return visitor


@dataclass(frozen=True)
class ActRecorder:
    """Where acts are recorded; without a trail, nowhere."""

    trail: Trail | None

    def record(self, visitor: Visitor, method: str, *, server: str = "", tool: str = "") -> None:
        """Something was done: `method` says what, such as `key/create`."""
        if self.trail is not None:
            who = visitor.principal
            entry = AuditEntry(time.time_ns() // 1_000_000, who.name, who.tenant, "dashboard")
            self.trail.add(entry._replace(method=method, server=server, tool=tool))
