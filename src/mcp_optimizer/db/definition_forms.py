"""Reads and writes data about definitions, by their hash: compressed forms, written descriptions, shapes of results.

Called in the background; no request waits for it. All of it can be made again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select

from mcp_optimizer.db.tables import definition_form, result_shape, written_description
from mcp_optimizer.db.transactions import Transactions, chunks, upsert
from mcp_optimizer.domain.tools import DefinitionForm


class StoredForms(Transactions):
    """The forms of definitions in the catalog database, by hash."""

    async def read(self, hashes: Iterable[str], kind: str) -> list[DefinitionForm]:
        """The stored forms of these definitions; forms never made are missing."""
        found: list[DefinitionForm] = []
        table = definition_form
        columns = (table.c.definition_hash, table.c.definition, table.c.token_count, table.c.groups)
        async with self._reading() as connection:
            if (await connection.execute(select(table.c.kind).where(table.c.kind == kind).limit(1))).first() is None:
                # As at the first start: no need to look up thousands of hashes.
                return []
            for chunk in chunks(hashes):
                query = select(*columns).where(table.c.kind == kind, table.c.definition_hash.in_(chunk))
                found += [DefinitionForm(*row) for row in await connection.execute(query)]
        return found

    async def write(self, forms: Sequence[DefinitionForm], kind: str) -> None:
        """Write all forms or none. Forms from another version of the compression are deleted."""
        version = kind.partition("/")[0]
        async with self._writing(alone=True) as connection:
            await connection.execute(delete(definition_form).where(definition_form.c.kind.not_like(f"{version}/%")))
            for chunk in chunks(forms):
                statement = upsert(connection, definition_form).on_conflict_do_nothing()
                await connection.execute(statement, [_row(form, kind) for form in chunk])

    async def descriptions(self, hashes: Iterable[str], writer: str) -> dict[str, str]:
        """This writer's descriptions of these definitions; empty where none of its texts was usable."""
        found: dict[str, str] = {}
        table = written_description
        async with self._reading() as connection:
            for chunk in chunks(hashes):
                query = select(table.c.definition_hash, table.c.text).where(
                    table.c.writer == writer, table.c.definition_hash.in_(chunk)
                )
                found.update((row[0], row[1]) for row in await connection.execute(query))
        return found

    async def write_descriptions(self, texts: Mapping[str, str], writer: str) -> None:
        rows = [{"definition_hash": key, "writer": writer, "text": text} for key, text in sorted(texts.items())]
        async with self._writing() as connection:
            for chunk in chunks(rows):
                await connection.execute(upsert(connection, written_description).on_conflict_do_nothing(), chunk)


def _row(form: DefinitionForm, kind: str) -> dict[str, Any]:
    return {
        "definition_hash": form.definition_hash,
        "kind": kind,
        "definition": form.definition,
        "token_count": form.token_count,
        "groups": form.groups,
    }


class StoredShapes(Transactions):
    """Shapes of results as text, each with the number of results it was learned from."""

    async def read(self, most: int) -> dict[str, tuple[int, str]]:
        """The newest shapes, oldest first."""
        table = result_shape
        newest = select(table.c.definition_hash, table.c.results, table.c.shape).order_by(table.c.at_ms.desc())
        async with self._reading() as connection:
            rows = (await connection.execute(newest.limit(most))).all()
        return {row.definition_hash: (row.results, row.shape) for row in reversed(rows)}

    async def write(self, shapes: Mapping[str, tuple[int, str]], most: int) -> None:
        """Insert or replace these shapes; beyond `most`, the oldest are deleted."""
        table, now = result_shape, time.time_ns() // 1_000_000
        rows = [
            {"definition_hash": key, "results": results, "shape": shape, "at_ms": now}
            for key, (results, shape) in sorted(shapes.items())
        ]
        async with self._writing(alone=True) as connection:
            for chunk in chunks(rows):
                statement = upsert(connection, table)
                new = {column: statement.excluded[column] for column in ("results", "shape", "at_ms")}
                changing = statement.on_conflict_do_update(index_elements=["definition_hash"], set_=new)
                await connection.execute(changing, chunk)
            if ((await connection.execute(select(func.count()).select_from(table))).scalar() or 0) > most:
                kept = select(table.c.definition_hash).order_by(table.c.at_ms.desc(), table.c.definition_hash)
                await connection.execute(delete(table).where(table.c.definition_hash.not_in(kept.limit(most))))
