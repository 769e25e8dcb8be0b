"""Reads and writes of what is derived from definitions: compressed forms, and written descriptions.

In the background; no request waits for it. All of it can be computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, select

from mcp_optimizer.db.tables import definition_form, written_description
from mcp_optimizer.db.transactions import Transactions, chunks, upsert
from mcp_optimizer.domain.tools import DefinitionForm


class StoredForms(Transactions):
    """The forms of definitions in the catalog database, by hash."""

    async def read(self, hashes: Iterable[str], kind: str) -> list[DefinitionForm]:
        """What is stored for these definitions; missing ones were never made."""
        found: list[DefinitionForm] = []
        table = definition_form
        columns = (table.c.definition_hash, table.c.definition, table.c.token_count, table.c.groups)
        async with self._reading() as connection:
            if (await connection.execute(select(table.c.kind).where(table.c.kind == kind).limit(1))).first() is None:
                # The first start: no need to look up thousands of hashes.
                return []
            for chunk in chunks(hashes):
                query = select(*columns).where(table.c.kind == kind, table.c.definition_hash.in_(chunk))
                found += [DefinitionForm(*row) for row in await connection.execute(query)]
        return found

    async def write(self, forms: Sequence[DefinitionForm], kind: str) -> None:
        """Writes all or none. Forms from an older compression are deleted."""
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
