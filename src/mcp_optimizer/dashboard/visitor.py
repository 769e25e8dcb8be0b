"""Who looks at a page. A frozen value; `reception` finds out, `guard` hands it to the pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
