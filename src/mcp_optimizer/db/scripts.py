"""Reads and writes stored scripts, which several gateways and the command line share."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from sqlalchemy import delete, func, insert, select

from mcp_optimizer.db.tables import stored_script
from mcp_optimizer.db.transactions import Transactions
from mcp_optimizer.domain.caller import Risk
from mcp_optimizer.domain.stored_script import ParameterType, ScriptParameter, StoredScript, UsedTool

logger = logging.getLogger(__name__)


class ScriptsMark(NamedTuple):
    """Changes whenever a script is saved or deleted, by any process."""

    scripts: int
    moments: int


class ScriptRows(Transactions):
    """All stored scripts, by name."""

    async def mark(self) -> ScriptsMark:
        wanted = select(func.count(), func.sum(stored_script.c.saved_at_ms))
        async with self._reading() as connection:
            count, moments = (await connection.execute(wanted)).one()
        return ScriptsMark(count, int(moments or 0))

    async def all(self, most: int) -> list[StoredScript]:
        """The first `most` scripts by name, without those that a newer version wrote in an unknown format."""
        wanted = select(stored_script).order_by(stored_script.c.name).limit(most)
        async with self._reading() as connection:
            rows = (await connection.execute(wanted)).mappings().all()
        return [script for row in rows if (script := _read(row)) is not None]

    async def named(self, name: str) -> StoredScript | None:
        wanted = select(stored_script).where(stored_script.c.name == name)
        async with self._reading() as connection:
            row = (await connection.execute(wanted)).mappings().first()
        return None if row is None else _read(row)

    async def save(self, script: StoredScript, most: int, *, replaces: bool) -> str:
        """Write a script and return ""; or write nothing and return why: "name" (taken) or "many" (too many)."""
        table = stored_script
        async with self._writing(alone=True) as connection:
            known = select(table.c.saved_at_ms).where(table.c.name == script.name)
            before = (await connection.execute(known)).scalar()
            if before is not None and not replaces:
                return "name"
            count = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
            if before is None and count >= most:
                return "many"
            await connection.execute(delete(table).where(table.c.name == script.name))
            # Later than the script it replaces, so the mark changes.
            now = max(time.time_ns() // 1_000_000, (before or 0) + 1)
            await connection.execute(insert(table).values(_row(replace(script, saved_at_ms=now))))
        return ""

    async def delete(self, name: str) -> bool:
        """Delete a script; returns whether there was one."""
        gone = delete(stored_script).where(stored_script.c.name == name).returning(stored_script.c.name)
        async with self._writing(alone=True) as connection:
            return (await connection.execute(gone)).first() is not None


def _row(script: StoredScript) -> dict[str, Any]:
    return {
        "name": script.name,
        "source": script.source,
        "description": script.description,
        "parameters": json.dumps([asdict(one) for one in script.parameters]),
        "uses": json.dumps([asdict(one) for one in script.uses]),
        "risk": script.risk.value,
        "saved_at_ms": script.saved_at_ms,
    }


def _read(row: Mapping[Any, Any]) -> StoredScript | None:
    try:
        parameters = [{**one, "type": ParameterType(one["type"])} for one in json.loads(row["parameters"])]
        uses = [UsedTool(**one) for one in json.loads(row["uses"])]
        risk = Risk(row["risk"])
    except (ValueError, TypeError, KeyError):
        logger.warning("A stored script was written by another version of mcp-optimizer and is left out.")
        return None
    taken = tuple(ScriptParameter(**one) for one in parameters)
    return StoredScript(row["name"], row["source"], row["description"], taken, tuple(uses), risk, row["saved_at_ms"])
