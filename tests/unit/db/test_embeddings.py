"""A tool that is read from the database carries the vector that it is found by."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np
import pytest

from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.db.catalog import Catalog
from mcp_optimizer.domain.tools import Definition, ServerStatus, ToolRow, ToolUpdateDetails
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import mcp_tool
from tests.unit.db.filling import opened
from tests.unit.search.toy_encoder import ToyEncoder

DRAW = mcp_tool("draw", "Draw an image")
SEND = mcp_tool("send_letter", "Send a letter")


async def fill(catalog: Catalog, key: str | None = "key of draw") -> str:
    server_id = await catalog.save_server("office", "f1", "stdio", ServerStatus.RUNNING)
    await catalog.replace_tools(server_id, [ToolRow(Definition.of(DRAW), 7, key)])
    return server_id


async def embedding(catalog: Catalog, server_id: str, encoder: str | None = None) -> list[float] | None:
    (tool,) = await catalog.tools(server_id, encoder)
    return None if tool.details_embedding is None else tool.details_embedding.tolist()


@pytest.mark.requirement("A2", "DM-Tool")
@pytest.mark.parametrize("description", ["", "Where pictures and letters are made"])
async def test_an_ingested_tool_is_read_with_the_vector_of_its_encoder(place: Path | str, description: str) -> None:
    office = ServerSpec(name="office", transport=Transport.STDIO, command="start-it", description=description)
    listing = Listing(tuple(map(Definition.of, (DRAW, SEND))))
    encoder, counter, vocabulary = ToyEncoder(), TokenCounter(), Vocabulary()
    async with opened(place) as stored:

        async def database() -> Catalog:
            return stored

        catalog = LiveCatalog(Ingestion(counter, vocabulary, database), vocabulary, counter)
        catalog.on_state(UpstreamState(office, ServerStatus.RUNNING, listing))
        await catalog.caught_up()
        (server,) = await stored.servers()
        assert [tool.details_embedding for tool in await stored.tools(server.id)] == [None, None]
        await catalog.use_encoder(encoder)
        await catalog.caught_up()
        texts = [tool.record.text for tool in catalog.snapshot.running]
        assert all(description in text for text in texts)
        for name in (None, encoder.name):
            tools = await stored.tools(server.id, name)
            assert [tool.details.name for tool in tools] == ["draw", "send_letter"]
            vectors = [tool.details_embedding for tool in tools if tool.details_embedding is not None]
            assert [vector.ndim for vector in vectors] == [1, 1]
            np.testing.assert_allclose(vectors, encoder.embed_tools(texts))
        assert [tool.details_embedding for tool in await stored.tools(server.id, "another")] == [None, None]


async def test_vectors_of_two_encoders_are_told_apart_by_name_only(place: Path | str) -> None:
    async with opened(place) as catalog:
        server_id = await fill(catalog)
        await catalog.save_vectors({"key of draw": np.array([1.0, 2.0])}, "small")
        assert await embedding(catalog, server_id) == [1.0, 2.0]
        await catalog.save_vectors({"key of draw": np.array([3.0])}, "large")
        assert await embedding(catalog, server_id, "small") == [1.0, 2.0]
        assert await embedding(catalog, server_id, "large") == [3.0]
        assert await embedding(catalog, server_id) is None


@pytest.mark.requirement("DM-ToolUpdateDetails")
async def test_an_embedding_that_is_written_is_read_until_the_details_change(place: Path | str) -> None:
    async with opened(place) as catalog:
        server_id, counter = await fill(catalog), TokenCounter()
        await catalog.save_vectors({"key of draw": np.array([1.0, 2.0])}, "small")
        (tool,) = await catalog.tools(server_id)
        vector = np.array([0.5, -1.0, 0.25], dtype=np.float32)
        await catalog.update_tool(tool.id, ToolUpdateDetails(details_embedding=vector), counter)
        assert await embedding(catalog, server_id, "small") == vector.tolist()
        await catalog.update_tool(tool.id, ToolUpdateDetails(details=SEND), counter)
        assert await embedding(catalog, server_id, "small") is None
        both = ToolUpdateDetails(details=DRAW, details_embedding=vector)
        await catalog.update_tool(tool.id, both, counter)
        assert await embedding(catalog, server_id) == vector.tolist()


async def test_a_tool_of_an_older_gateway_gets_its_key_and_stays_the_same_tool(place: Path | str) -> None:
    async with opened(place) as catalog:
        await catalog.save_vectors({"key of draw": np.array([1.0, 2.0])}, "small")
        server_id = await fill(catalog, None)
        (before,) = await catalog.tools(server_id)
        assert before.details_embedding is None
        await fill(catalog)
        (after,) = await catalog.tools(server_id)
        assert (after.id, after.created_at) == (before.id, before.created_at)
        assert await embedding(catalog, server_id) == [1.0, 2.0]
        assert await catalog.replace_tools(server_id, [ToolRow(Definition.of(DRAW), 7, "key of draw")]) == 0


WITHOUT_VECTORS = """
import asyncio, sys
from pathlib import Path
from mcp_optimizer.db.catalog import Catalog
from mcp_optimizer.db.database import open_database

async def main():
    catalog = Catalog(await open_database(Path(sys.argv[1])))
    for server in await catalog.servers():
        assert len(await catalog.tools(server.id)) == 1
    assert "numpy" not in sys.modules

asyncio.run(main())
"""


@pytest.mark.process
async def test_tools_without_vectors_are_read_without_numpy(tmp_path: Path) -> None:
    async with opened(tmp_path / "catalog.db") as catalog:
        await fill(catalog)
    reader = await asyncio.create_subprocess_exec(sys.executable, "-c", WITHOUT_VECTORS, tmp_path / "catalog.db")
    assert await asyncio.wait_for(reader.wait(), 60) == 0
