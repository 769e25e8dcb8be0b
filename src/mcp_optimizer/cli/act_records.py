"""Records in the audit what commands change, such as secrets, keys and entries of the server file.

Called after the change is made. A value is never recorded.
"""

from __future__ import annotations

import getpass
import time

from mcp_optimizer.config.settings import Settings


async def record_act(settings: Settings, method: str, name: str = "", server: str = "", outcome: str = "ok") -> None:
    """Record an act, such as `secret/set` of a name, in the audit of these settings; never a value."""
    if not settings.audit:
        return
    from mcp_optimizer.access.audit.command_acts import record
    from mcp_optimizer.app.part_options import audit_options
    from mcp_optimizer.domain.audit import AuditEntry

    entry = AuditEntry(
        time.time_ns() // 1_000_000,
        client=f"command line of {_user()}",
        method=method,
        server=server,
        tool=name,
        outcome=outcome,
    )
    await record(settings.database_place, audit_options(settings), entry)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container may run as a user that has no name.
        return "an unnamed user"
