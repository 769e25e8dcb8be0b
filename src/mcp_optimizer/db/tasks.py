"""Reads and writes the tasks that clients ask for, which all gateways on one database answer for."""

from __future__ import annotations

import time

from sqlalchemy import delete, func, insert, select

from mcp_optimizer.db.tables import task
from mcp_optimizer.db.transactions import Transactions
from mcp_optimizer.domain.kept_tasks import KeptTask

_AT_ONCE = 1_000
"""Tasks deleted when one is added: a million that are over at the same time must not hold up the others."""


class TaskRows(Transactions):
    """The tasks of all callers."""

    async def add(self, kept: KeptTask, most: int) -> bool:
        """Write a task, unless its caller has `most` already. Some tasks whose time is over are deleted first."""
        now = _now()
        # In order, and not inside of the deletion: PostgreSQL then uses the index, whatever it knows of the table.
        over = select(task.c.id).where(task.c.until_ms < now).order_by(task.c.until_ms).limit(_AT_ONCE)
        async with self._writing(alone=True) as connection:
            if ended := (await connection.execute(over)).scalars().all():
                await connection.execute(delete(task).where(task.c.id.in_(ended)))
            count = select(func.count()).select_from(task).where(task.c.caller == kept.caller, task.c.until_ms >= now)
            if (await connection.execute(count)).scalar_one() >= most:
                return False
            await connection.execute(insert(task).values(vars(kept)))
        return True

    async def find(self, task_id: str, caller: str) -> KeptTask | None:
        """The task with this id, if it is this caller's and its time is not over."""
        wanted = select(task).where(task.c.id == task_id, task.c.caller == caller, task.c.until_ms >= _now())
        async with self._reading() as connection:
            row = (await connection.execute(wanted)).mappings().first()
        return None if row is None else KeptTask(**{**row, "is_unchanged": bool(row["is_unchanged"])})


def _now() -> int:
    return round(time.time() * 1_000)
