"""Reads and writes pins: servers and tools as they were when they were approved, and changes that wait for approval.

Several gateways and the command line share pins. Every write reads in the same transaction, as the only writer: of two
first listings only one becomes the baseline, and nothing that changed meanwhile is approved. Servers choose names
freely, so names are stored in a form that every database can hold.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, delete, func, select

from mcp_optimizer.db.engines import AsyncConnection
from mcp_optimizer.db.gateways import announce
from mcp_optimizer.db.tables import server_pin, tool_pin
from mcp_optimizer.db.transactions import Transactions, chunks, upsert
from mcp_optimizer.domain.gateways import ChangeKind
from mcp_optimizer.domain.pins import NO_MARK, Mark, Pins, PinState, ServerPin, ToolPin, seen_first
from mcp_optimizer.runtime.patterns import regex

_APPROVED, _WAITING = PinState.APPROVED.value, PinState.WAITING.value
_SERVER_KEY = ["server", "state"]
_TOOL_KEY = ["server", "tool", "state"]
_TOOL_VALUES = ["hash", "definition", "by", "at_ms", "whole", "sent"]

_ESCAPE = "\x10"
_UNSTORABLE = regex(f"[\0{_ESCAPE}\ud800-\udfff]")
_ESCAPED = regex(f"{_ESCAPE}([0-9a-f]{{4}})")


class StoredPins(Transactions):
    """The pins of all servers, by name."""

    async def read(self, server: str) -> Pins:
        """All pins of a server, without the tools' definitions, which are most of the data."""
        async with self._reading() as connection:
            return await _read(connection, server)

    async def whole(self, server: str) -> Pins:
        """All pins of a server, with the tools' definitions."""
        async with self._reading() as connection:
            return await _read(connection, server, definitions=True)

    async def servers(self) -> list[str]:
        """The servers that have pins."""
        async with self._reading() as connection:
            found = await connection.execute(select(server_pin.c.server).distinct().order_by(server_pin.c.server))
            return [_unescaped(row.server) for row in found]

    async def marks(self, servers: Collection[str]) -> dict[str, Mark]:
        """A mark for each server that changes with every approval."""
        found = dict.fromkeys(servers, NO_MARK)
        async with self._reading() as connection:
            for chunk in chunks(sorted(map(_escaped, servers))):
                begun = select(server_pin.c.server, server_pin.c.at_ms).where(
                    server_pin.c.server.in_(chunk), server_pin.c.state == _APPROVED
                )
                starts = {row.server: row.at_ms for row in await connection.execute(begun)}
                counted = (
                    select(tool_pin.c.server, func.count().label("tools"), func.sum(tool_pin.c.at_ms).label("moments"))
                    .where(tool_pin.c.server.in_(chunk), tool_pin.c.state == _APPROVED)
                    .group_by(tool_pin.c.server)
                )
                tools = {row.server: (row.tools, int(row.moments)) for row in await connection.execute(counted)}
                for server, at_ms in starts.items():
                    count, moments = tools.get(server, NO_MARK)
                    found[_unescaped(server)] = (count, moments + at_ms)
        return found

    async def begin(self, server: str, pin: ServerPin, tools: Mapping[str, ToolPin]) -> Pins:
        """Make these pins the baseline of a server, unless it has one. Returns the pins approved afterwards."""
        async with self._writing(alone=True) as connection:
            known = await _read(connection, server)
            if known.approved is not None:
                return known
            at_ms = await _put_server(connection, server, _APPROVED, pin)
            first = {name: replace(tool, at_ms=0) for name, tool in tools.items()}
            written = await _put_tools(connection, server, _APPROVED, first)
        approved = {name: replace(tool, definition=b"", at_ms=written) for name, tool in tools.items()}
        return Pins(replace(pin, at_ms=at_ms), approved)

    async def adopt(self, server: str, tools: Mapping[str, ToolPin]) -> None:
        """Approve what could not be reviewed before, the first time it is seen: see `seen_first`."""
        async with self._writing(alone=True) as connection:
            known = (await _read(connection, server)).tools
            await _put_tools(connection, server, _APPROVED, seen_first(known, tools))

    async def wait(self, server: str, pin: ServerPin | None, tools: Mapping[str, ToolPin]) -> None:
        """Make exactly these pins wait for approval; pins that already waited unchanged keep their time."""
        async with self._writing(alone=True) as connection:
            known = await _read(connection, server)
            await _delete_tools(connection, server, _WAITING, known.waiting_tools.keys() - tools.keys())
            before = {name: found.version for name, found in known.waiting_tools.items()}
            new = {name: found for name, found in tools.items() if before.get(name) != found.version}
            await _put_tools(connection, server, _WAITING, new)
            if pin is None:
                await connection.execute(delete(server_pin).where(_is(server_pin, server, _WAITING)))
            elif known.waiting is None or known.waiting.identity != pin.identity:
                await _put_server(connection, server, _WAITING, pin)

    async def approve(self, server: str, tools: Mapping[str, str], by: str, identity: str = "") -> list[str]:
        """Approve waiting tools, given by name and version, and a changed command or URL, given by `identity`; each
        only if it is still the one that was reviewed. Returns the approved names.
        """
        async with self._writing(alone=True) as connection:
            known = await _read(connection, server, definitions=True)
            approved = {
                name: replace(pin, by=by, at_ms=0)
                for name, pin in known.waiting_tools.items()
                if tools.get(name) == pin.version
            }
            await _put_tools(connection, server, _APPROVED, approved)
            await _delete_tools(connection, server, _WAITING, approved)
            if known.waiting is not None and known.waiting.identity == identity:
                await _put_server(connection, server, _APPROVED, known.waiting)
                await connection.execute(delete(server_pin).where(_is(server_pin, server, _WAITING)))
            await announce(connection, ChangeKind.APPROVED, _escaped(server))
        return sorted(approved)

    async def reset(self, server: str) -> bool:
        """Delete a server's pins, so its next listing is the baseline. Returns whether it had any."""
        async with self._writing(alone=True) as connection:
            existed = (await _read(connection, server)).approved is not None
            for table in (tool_pin, server_pin):
                await connection.execute(delete(table).where(table.c.server == _escaped(server)))
            await announce(connection, ChangeKind.APPROVED, _escaped(server))
        return existed


async def _read(connection: AsyncConnection, server: str, *, definitions: bool = False) -> Pins:
    servers = await connection.execute(select(server_pin).where(server_pin.c.server == _escaped(server)))
    pins = {row.state: ServerPin(row.identity, _unescaped(row.shown), row.at_ms) for row in servers}
    columns = [column for column in tool_pin.c if definitions or column is not tool_pin.c.definition]
    tools: dict[str, dict[str, ToolPin]] = {_APPROVED: {}, _WAITING: {}}
    for row in await connection.execute(select(*columns).where(tool_pin.c.server == _escaped(server))):
        definition = row.definition if definitions else b""
        # An older gateway that approves a tool does not update `whole` and `sent`, which then describe another one.
        is_whole = row.whole is not None and row.whole.startswith(_binding(row.hash))
        whole, sent = (row.whole[len(_binding(row.hash)) :], row.sent or "") if is_whole else ("", "")
        pin = ToolPin(row.hash, definition, _unescaped(row.by), row.at_ms, whole, sent)
        tools[row.state][_unescaped(row.tool)] = pin
    return Pins(pins.get(_APPROVED), tools[_APPROVED], pins.get(_WAITING), tools[_WAITING])


async def _put_server(connection: AsyncConnection, server: str, state: str, pin: ServerPin) -> int:
    """Write a server's pin; returns the time written with it."""
    now = _now()
    new = {"identity": pin.identity, "shown": _escaped(pin.shown), "at_ms": now}
    statement = upsert(connection, server_pin).values(server=_escaped(server), state=state, **new)
    await connection.execute(statement.on_conflict_do_update(index_elements=_SERVER_KEY, set_=new))
    return now


async def _put_tools(connection: AsyncConnection, server: str, state: str, tools: Mapping[str, ToolPin]) -> int:
    """Write tools' pins; returns the time written with those that have none."""
    now = _now()
    for chunk in chunks(sorted(tools.items())):
        rows: list[dict[str, Any]] = [
            {
                "server": _escaped(server),
                "tool": _escaped(name),
                "state": state,
                "hash": pin.hash,
                "definition": pin.definition,
                "by": _escaped(pin.by),
                "at_ms": pin.at_ms or now,
                "whole": _binding(pin.hash) + pin.whole if pin.whole else None,
                "sent": pin.sent or None,
            }
            for name, pin in chunk
        ]
        statement = upsert(connection, tool_pin)
        new = {column: statement.excluded[column] for column in _TOOL_VALUES}
        await connection.execute(statement.on_conflict_do_update(index_elements=_TOOL_KEY, set_=new), rows)
    return now


async def _delete_tools(connection: AsyncConnection, server: str, state: str, names: Iterable[str]) -> None:
    for chunk in chunks(sorted(map(_escaped, names))):
        await connection.execute(delete(tool_pin).where(_is(tool_pin, server, state), tool_pin.c.tool.in_(chunk)))


def _is(table: Table, server: str, state: str) -> ColumnElement[bool]:
    return and_(table.c.server == _escaped(server), table.c.state == state)


def _binding(older_hash: str) -> str:
    """The prefix of `whole` that binds it to the definition with this hash."""
    return f"{older_hash[:32]}:"


def _escaped(text: str) -> str:
    """Escape a text for every database: PostgreSQL cannot hold NUL, and no database half a surrogate pair."""
    return _UNSTORABLE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def _now() -> int:
    return time.time_ns() // 1_000_000
