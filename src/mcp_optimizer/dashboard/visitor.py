"""The person or program that looks at a page, and the audit record of its changes.

`reception` identifies it and `guard` passes it to the pages; the routes that change something record it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_optimizer.domain.audit import AuditEntry, Trail
from mcp_optimizer.domain.caller import Principal, Role

if TYPE_CHECKING:
    from starlette.requests import Request

VISITOR_KEY = "mcp_optimizer.visitor"


@dataclass(frozen=True)
class Visitor:
    """An admitted visitor."""

    principal: Principal
    is_signed_in: bool = False
    """Signed in by the form, so signing out is possible."""
    is_anybody: bool = False
    """Admitted because the dashboard is open: any user of this machine."""

    @property
    def can_manage(self) -> bool:
        return self.principal.role.covers(Role.MANAGE)


def visitor_of(request: Request) -> Visitor:
    """The sender of an admitted request."""
    visitor: Visitor = request.scope[VISITOR_KEY]
    return visitor


@dataclass(frozen=True)
class ActRecorder:
    """Records acts in the audit; without a trail, nowhere."""

    trail: Trail | None

    def record(self, visitor: Visitor, method: str, *, server: str = "", tool: str = "") -> None:
        """Records an act: `method` names it, such as `key/create`."""
        if self.trail is not None:
            who = visitor.principal
            entry = AuditEntry(time.time_ns() // 1_000_000, who.name_in_audit, who.tenant, "dashboard")
            self.trail.add(entry._replace(method=method, server=server, tool=tool))
