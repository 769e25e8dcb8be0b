"""Whether somebody on the dashboard is known: by a key or token, or because the connection is one of our own user.

Asked before what would let any user of this machine act as the user of the gateway. Where the dashboard is open, being
let in proves nothing.
"""

from __future__ import annotations

import asyncio
import os

from starlette.requests import Request

from mcp_optimizer.dashboard.visitor import visitor_of
from mcp_optimizer.runtime.peer_owner import owner_of_peer

SIGN_IN = (
    "This dashboard is open to every user of this machine, and you are not known to be the one who runs the gateway. "
    "Sign in with a key that `mcp-optimizer key create --name NAME --role manage` makes, or set dashboard_token."
)
"""What somebody is told who has to be known first."""

_PASSED_ON = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""Behind a proxy, the connection is the proxy's, and the address is whatever a header says."""


async def is_proven(request: Request) -> bool:
    """Whether who sent this may act as the user of the gateway; the guard has checked their role."""
    if not visitor_of(request).is_anybody:
        return True
    peer, own = request.scope.get("client"), request.scope.get("server")
    if not peer or not own or own[1] is None or not hasattr(os, "getuid"):
        return False
    if any(name in request.headers for name in _PASSED_ON):
        return False
    owner = await asyncio.to_thread(owner_of_peer, (peer[0], peer[1]), (own[0], own[1]))
    # A connection that has ended leaves its numbers to another one.
    return owner == os.getuid() and not await request.is_disconnected()
