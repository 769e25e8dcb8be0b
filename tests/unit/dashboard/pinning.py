"""A server with a hostile name, whose tools changed since they were approved; in a database, and never started."""

from __future__ import annotations

from pathlib import Path

from mcp_optimizer.access.trust.pins import baseline, identity_of, pin_of
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.pins import StoredPins
from mcp_optimizer.domain.pins import Pins, ServerPin
from mcp_optimizer.domain.tools import Definition, McpTool
from tests.unit.dashboard.test_dashboard import HOSTILE

EVIL = '<b>x</b>/"reset\u200b'
SPEC = ServerSpec(EVIL, Transport.HTTP, url="http://127.0.0.1:9/mcp")
QUOTED = "%3Cb%3Ex%3C%2Fb%3E%2F%22reset%E2%80%8B"


def tool(name: str, description: str) -> Definition:
    return Definition.of(McpTool(name=name, description=description, inputSchema={"type": "object"}))


CHANGED = {"send": tool("send", f"Send a letter. {HOSTILE}"), EVIL: tool(EVIL, "Something new")}


async def pinned(place: Path, changed: dict[str, Definition] = CHANGED, server: ServerPin | None = None) -> None:
    """A server whose tools changed since they were approved."""
    database = await open_database(place)
    stored = StoredPins(database)
    await stored.begin(EVIL, identity_of(SPEC), baseline([tool("send", "Send a letter."), tool("open", "Open it")], []))
    await stored.wait(EVIL, server, {name: pin_of(definition) for name, definition in changed.items()})
    await database.close()


async def pins(place: Path) -> Pins:
    database = await open_database(place)
    try:
        return await StoredPins(database).read(EVIL)
    finally:
        await database.close()
