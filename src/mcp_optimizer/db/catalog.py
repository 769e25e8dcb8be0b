"""Reads and writes the catalog: servers, their tools and other lists, and what was made of each definition: its cost,
vector, forms and shape.

Called by ingestion in the background; no request waits for it. Every writing method is one transaction, so a kill
leaves all of a write or nothing. On PostgreSQL, an advisory lock lets one gateway at a time embed; the lock belongs to
a connection, so it is free as soon as its gateway is gone.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, Table, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from mcp_optimizer.db.engines import AsyncConnection
from mcp_optimizer.db.tables import (
    definition_form,
    definition_tokens,
    definition_vector,
    mcpserver,
    result_shape,
    server_list,
    tool,
    written_description,
)
from mcp_optimizer.db.transactions import Transactions, chunks, reason, upsert
from mcp_optimizer.domain.tools import (
    DefinitionForm,
    McpServer,
    McpTool,
    ServerStatus,
    Tool,
    ToolRow,
    ToolUpdateDetails,
)
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.search.lexical import Vector
from mcp_optimizer.search.vectors import numbers
from mcp_optimizer.token_counter import TokenCounter

if TYPE_CHECKING:
    from mcp_optimizer.db.database import Database


# Reads and writes data about definitions, by their hash: compressed forms, written descriptions, shapes of results.
# Called in the background; no request waits for it. All of it can be made again.


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


_EMBEDDING = 0x6D63706F656D6264
"""The number of the advisory lock, unique in the database."""


@dataclass(frozen=True)
class EmbeddingTurn:
    """The right to embed, until it is released."""

    connection: AsyncConnection | None = None

    async def release(self) -> None:
        """Release the lock. Never raises, because a broken connection frees the lock too."""
        if self.connection is None:
            return
        with contextlib.suppress(SQLAlchemyError, OSError):
            try:
                await self.connection.execute(select(func.pg_advisory_unlock(_EMBEDDING)))
            except (SQLAlchemyError, OSError):
                await self.connection.invalidate()
            await self.connection.close()


async def embedding_turn(database: Database) -> EmbeddingTurn | None:
    """The right to embed tools; None while another gateway has it. Raises CatalogError."""
    if database.engine.dialect.name != "postgresql":
        return EmbeddingTurn()
    try:
        connection = await database.connected(isolation_level="AUTOCOMMIT")
        try:
            is_free = (await connection.execute(select(func.pg_try_advisory_lock(_EMBEDDING)))).scalar_one()
        except BaseException:
            await connection.invalidate()
            await connection.close()
            raise
        if is_free:
            return EmbeddingTurn(connection)
        await connection.close()
    except (SQLAlchemyError, OSError) as error:
        raise CatalogError(reason(error)) from error
    return None


class Catalog(Transactions):
    """Servers, tools and definitions in the catalog database."""

    async def revive(self) -> None:
        """Create a new file if the old one was deleted meanwhile; call it before writing."""
        await self._database.revive()

    async def embedding_turn(self) -> EmbeddingTurn | None:
        """The right to embed tools; None while another gateway has it."""
        return await embedding_turn(self._database)

    async def token_counts(self, hashes: Iterable[str], encoding: str) -> dict[str, int]:
        """The stored counts of these definitions; definitions never counted are missing."""
        found: dict[str, int] = {}
        columns = (definition_tokens.c.definition_hash, definition_tokens.c.token_count)
        async with self._reading() as connection:
            for chunk in chunks(hashes):
                query = select(*columns).where(
                    definition_tokens.c.encoding == encoding, definition_tokens.c.definition_hash.in_(chunk)
                )
                found.update((row[0], row[1]) for row in await connection.execute(query))
        return found

    async def save_token_counts(self, counts: Mapping[str, int], encoding: str) -> None:
        rows = [{"definition_hash": key, "encoding": encoding, "token_count": count} for key, count in counts.items()]
        await self._insert_missing(definition_tokens, rows)

    async def vectors(self, hashes: Iterable[str], encoder: str) -> dict[str, bytes]:
        """The stored embeddings of these definitions by this encoder."""
        async with self._reading() as connection:
            return await _vectors(connection, hashes, encoder)

    async def save_vectors(self, vectors: Mapping[str, Vector], encoder: str) -> None:
        rows = [
            {"definition_hash": key, "encoder": encoder, "vector": _blob(vector)} for key, vector in vectors.items()
        ]
        await self._insert_missing(definition_vector, rows)

    async def save_server(self, name: str, fingerprint: str, transport: str, status: ServerStatus) -> str:
        """Insert or refresh a server; returns its id."""
        now = datetime.now(UTC)
        values = {"name": name, "fingerprint": fingerprint, "transport": transport, "status": status.value}
        async with self._writing() as connection:
            statement = (
                upsert(connection, mcpserver)
                .values(id=str(uuid.uuid4()), created_at=now, last_updated=now, **values)
                .on_conflict_do_update(
                    index_elements=["name", "fingerprint"], set_={"status": status.value, "last_updated": now}
                )
                .returning(mcpserver.c.id)
            )
            return str((await connection.execute(statement)).scalar_one())

    async def replace_tools(self, mcpserver_id: str, rows: Sequence[ToolRow]) -> int:
        """Make the server's tools exactly these, without touching unchanged rows. Returns how many rows changed."""
        async with self._writing(alone=True) as connection:
            columns = (tool.c.id, tool.c.definition_hash, tool.c.token_count, tool.c.vector_key)
            query = select(*columns).where(tool.c.mcpserver_id == mcpserver_id)
            # The key includes the count: another encoding, or an earlier failure to count, changes the row.
            known = {(row[1], row[2]): row for row in await connection.execute(query)}
            wanted = {(row.definition.definition_hash, row.token_count): row for row in rows}
            gone = [known[key].id for key in known.keys() - wanted.keys()]
            new = [wanted[key] for key in wanted if key not in known]
            # The vector key depends on the server's description in the server file, and older gateways do not write it.
            moved = [
                {"moved": known[key].id, "to": wanted[key].vector_key}
                for key in known.keys() & wanted.keys()
                if known[key].vector_key != wanted[key].vector_key
            ]
            for chunk in chunks(gone):
                await connection.execute(delete(tool).where(tool.c.id.in_(chunk)))
            await _insert_tools(connection, mcpserver_id, new)
            for keys in chunks(moved):
                where = update(tool).where(tool.c.id == bindparam("moved"))
                await connection.execute(where.values(vector_key=bindparam("to")), keys)
        return len(gone) + len(new) + len(moved)

    async def servers(self) -> list[McpServer]:
        async with self._reading() as connection:
            rows = await connection.execute(select(mcpserver).order_by(mcpserver.c.name, mcpserver.c.fingerprint))
            return [McpServer.model_validate(dict(row._mapping)) for row in rows]

    async def tools(self, mcpserver_id: str, encoder: str | None = None) -> list[Tool]:
        """A server's tools with their embeddings by this encoder, or by the only one that embedded them if None."""
        async with self._reading() as connection:
            rows = (await connection.execute(select(tool).where(tool.c.mcpserver_id == mcpserver_id))).all()
            vectors = await _vectors(connection, {row.vector_key for row in rows if row.vector_key}, encoder)
        found = [_tool(row, row.details_embedding or vectors.get(row.vector_key)) for row in rows]
        return sorted(found, key=lambda one: one.details.name)

    async def listed(self, servers: Mapping[str, str]) -> dict[str, list[str]]:
        """The tools that servers listed last, as JSON, by server name. `servers` maps names to fingerprints."""
        found: dict[str, list[str]] = {}
        columns = (mcpserver.c.name, mcpserver.c.fingerprint, tool.c.details)
        async with self._reading() as connection:
            for chunk in chunks(servers):
                query = select(*columns).where(tool.c.mcpserver_id == mcpserver.c.id, mcpserver.c.name.in_(chunk))
                for name, fingerprint, details in await connection.execute(query):
                    if servers[name] == fingerprint:
                        found.setdefault(name, []).append(details)
        return found

    async def listed_at(self, servers: Mapping[str, str]) -> dict[str, float]:
        """When servers listed their tools last, in wall-clock seconds, by name; asked for by names and fingerprints."""
        found: dict[str, float] = {}
        columns = (mcpserver.c.name, mcpserver.c.fingerprint, mcpserver.c.last_updated)
        is_listed = mcpserver.c.status == ServerStatus.RUNNING.value
        async with self._reading() as connection:
            for chunk in chunks(servers):
                query = select(*columns).where(mcpserver.c.name.in_(chunk), is_listed)
                for name, fingerprint, at in await connection.execute(query):
                    if servers[name] == fingerprint:
                        found[name] = at.timestamp()
        return found

    async def save_lists(self, mcpserver_id: str, lists: Mapping[str, str | None]) -> None:
        """Store a server's other lists by kind, as JSON; None deletes the stored list."""
        rows = [
            {"mcpserver_id": mcpserver_id, "kind": kind, "entries": entries}
            for kind, entries in sorted(lists.items())
            if entries is not None
        ]
        gone = [kind for kind, entries in lists.items() if entries is None]
        async with self._writing() as connection:
            if rows:
                statement = upsert(connection, server_list)
                changed = {"entries": statement.excluded["entries"]}
                writing = statement.on_conflict_do_update(index_elements=["mcpserver_id", "kind"], set_=changed)
                await connection.execute(writing, rows)
            if gone:
                of_server = server_list.c.mcpserver_id == mcpserver_id
                await connection.execute(delete(server_list).where(of_server, server_list.c.kind.in_(gone)))

    async def lists(self, servers: Mapping[str, str], kind: str | None = None) -> dict[str, dict[str, str]]:
        """What else servers listed last, as JSON, by their names and by kind; asked for by names and fingerprints, and
        by the kind, if not all are wanted.
        """
        found: dict[str, dict[str, str]] = {}
        columns = (mcpserver.c.name, mcpserver.c.fingerprint, server_list.c.kind, server_list.c.entries)
        async with self._reading() as connection:
            for chunk in chunks(servers):
                of_these = [server_list.c.mcpserver_id == mcpserver.c.id, mcpserver.c.name.in_(chunk)]
                if kind is not None:
                    of_these.append(server_list.c.kind == kind)
                for name, fingerprint, one, entries in await connection.execute(select(*columns).where(*of_these)):
                    if servers[name] == fingerprint:
                        found.setdefault(name, {})[one] = entries
        return found

    async def update_tool(self, tool_id: str, changes: ToolUpdateDetails, counter: TokenCounter) -> None:
        """Change a tool; new details are recounted in the same transaction, unless a count is given."""
        values: dict[str, Any] = {"last_updated": datetime.now(UTC)}
        if changes.mcpserver_id is not None:
            values["mcpserver_id"] = changes.mcpserver_id
        if changes.details is not None:
            values["details"] = changes.details.model_dump_json()
            values["definition_hash"] = changes.details.definition_hash
            values["token_count"] = counter.count_tool_tokens(changes.details)
        if changes.details is not None or changes.mcpserver_id is not None:
            # The old vector was made from the old details and the old server's name.
            values |= {"vector_key": None, "details_embedding": b""}
        if changes.details_embedding is not None:
            values["details_embedding"] = _blob(changes.details_embedding)
        if changes.token_count is not None:
            values["token_count"] = changes.token_count
        async with self._writing() as connection:
            await connection.execute(update(tool).where(tool.c.id == tool_id).values(**values))

    async def delete_server(self, mcpserver_id: str) -> None:
        """Delete a server, its tools and its other lists."""
        async with self._writing() as connection:
            await connection.execute(delete(mcpserver).where(mcpserver.c.id == mcpserver_id))

    async def _insert_missing(self, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        async with self._writing() as connection:
            for chunk in chunks(sorted(rows, key=itemgetter("definition_hash"))):
                await connection.execute(upsert(connection, table).on_conflict_do_nothing(), chunk)


async def _insert_tools(connection: AsyncConnection, mcpserver_id: str, rows: Sequence[ToolRow]) -> None:
    now = datetime.now(UTC)
    for chunk in chunks(rows):
        values = [
            {
                "id": str(uuid.uuid4()),
                "mcpserver_id": mcpserver_id,
                "details": row.definition.wire_json,
                "details_embedding": b"",
                "token_count": row.token_count,
                "definition_hash": row.definition.definition_hash,
                "vector_key": row.vector_key,
                "last_updated": now,
                "created_at": now,
            }
            for row in chunk
        ]
        await connection.execute(insert(tool), values)


async def _vectors(connection: AsyncConnection, keys: Iterable[str], encoder: str | None) -> dict[str, bytes]:
    """Vectors by key. Without an encoder, only vectors that a single encoder made: those of two cannot be compared."""
    found: dict[str, bytes] = {}
    columns = (definition_vector.c.definition_hash, definition_vector.c.vector)
    for chunk in chunks(keys):
        query = select(*columns).where(definition_vector.c.definition_hash.in_(chunk))
        if encoder is not None:
            query = query.where(definition_vector.c.encoder == encoder)
        rows = [(key, bytes(vector)) for key, vector in await connection.execute(query)]
        makers = Counter(key for key, _ in rows)
        found.update((key, vector) for key, vector in rows if makers[key] == 1)
    return found


def _tool(row: Row[Any], vector: bytes | None) -> Tool:
    return Tool(
        id=row.id,
        mcpserver_id=row.mcpserver_id,
        details=McpTool.model_validate_json(row.details),
        details_embedding=numbers(bytes(vector)) if vector else None,
        token_count=row.token_count,
        last_updated=row.last_updated,
        created_at=row.created_at,
    )


def _blob(vector: Vector) -> bytes:
    return vector if isinstance(vector, bytes) else vector.astype("<f4").tobytes()
