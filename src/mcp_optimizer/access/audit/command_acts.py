"""Records one act of an administrator's command. Called by commands; opens the database and the file itself, because
a command's process has no trail.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from mcp_optimizer.access.audit.audit_file import AuditFile, AuditOptions
from mcp_optimizer.db.audit import StoredAudit
from mcp_optimizer.db.database import open_database
from mcp_optimizer.domain.audit import AuditEntry, bounded
from mcp_optimizer.errors import CatalogError

logger = logging.getLogger(__name__)


async def record(place: Path | str | None, options: AuditOptions, entry: AuditEntry) -> None:
    """Write an entry to the database at `place` and to the file. A failure is only logged: the act is already done."""
    entry = bounded(entry)
    if place is not None:
        try:
            database = await open_database(place)
            try:
                await StoredAudit(database).write([entry])
            finally:
                await database.close()
        except CatalogError as error:
            logger.error("This is not in the audit table: %s.", error)
    if (file := AuditFile.of(options)) is not None:
        try:
            await asyncio.to_thread(file.append, [entry])
        except OSError as error:
            logger.error("This is not in the audit file %s: %s.", file.path, error.strerror)
