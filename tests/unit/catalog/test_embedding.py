"""Embedding runs in the background, once per text and encoder, and no search waits for it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.catalog import ingestion as pipeline
from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.tools import vector_key
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.db.catalog import Catalog
from mcp_optimizer.db.database import open_database
from mcp_optimizer.gateway.found_tools import FoundTools
from mcp_optimizer.search.engine import Encoder
from mcp_optimizer.search.lexical import Floats, Vocabulary
from mcp_optimizer.serving.own_tools import find_response
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import down, mcp_tool, new_catalog, new_gateway, running
from tests.unit.search.toy_encoder import ToyEncoder, UnreachableEncoder

DRAW = mcp_tool("draw", "Draw an image")
SEND = mcp_tool("send_letter", "Send a letter")
COUNT = mcp_tool("reckon", "Add up")
OFFICE = running("office", DRAW, SEND, COUNT)


@dataclass(frozen=True)
class Started:
    """A gateway's parts after one start, without servers."""

    catalog: LiveCatalog
    ingestion: Ingestion
    stored: Catalog


@asynccontextmanager
async def started(path: Path, *states: UpstreamState, encoder: Encoder | None = None) -> AsyncIterator[Started]:
    """Start as a gateway does: everything is new except the database file."""
    database = await open_database(path)
    stored = Catalog(database)

    async def opened() -> Catalog:
        return stored

    counter, vocabulary = TokenCounter(), Vocabulary()
    ingestion = Ingestion(counter, vocabulary, opened)
    catalog = LiveCatalog(ingestion, vocabulary, counter)
    try:
        for state in states:
            catalog.on_state(state)
        await catalog.caught_up()
        if encoder is not None:
            await catalog.use_encoder(encoder)
            await catalog.caught_up()
        yield Started(catalog, ingestion, stored)
    finally:
        await catalog.caught_up()
        await database.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def find(catalog: LiveCatalog, query: str) -> FoundTools:
    return new_gateway(catalog).find(query)


def names(catalog: LiveCatalog, query: str) -> list[str]:
    return [hit.tool.name for hit in find(catalog, query).tools]


async def test_tools_are_found_by_what_they_mean_once_they_are_embedded(path: Path) -> None:
    async with started(path, OFFICE, encoder=ToyEncoder()) as gateway:
        assert gateway.ingestion.embedded == 3
        assert not gateway.catalog.snapshot.index.by_words_only
        assert names(gateway.catalog, "photo") == ["draw"]
        assert names(gateway.catalog, "mail") == ["send_letter"]


async def test_a_server_that_comes_later_is_embedded_too(path: Path) -> None:
    encoder = ToyEncoder()
    async with started(path, running("office", DRAW), encoder=encoder) as gateway:
        gateway.catalog.on_state(running("post", SEND))
        await gateway.catalog.caught_up()
        assert names(gateway.catalog, "mail") == ["send_letter"]
        gateway.catalog.on_state(running("office", DRAW, COUNT))
        await gateway.catalog.caught_up()
        assert names(gateway.catalog, "total") == ["reckon"]
        # Each tool was embedded once.
        assert len(encoder.read) == len(set(encoder.read)) == gateway.ingestion.embedded == 3


async def test_a_warm_start_embeds_nothing(path: Path) -> None:
    async with started(path, OFFICE, encoder=ToyEncoder()):
        pass
    encoder = ToyEncoder()
    async with started(path, OFFICE, encoder=encoder) as gateway:
        assert (gateway.ingestion.embedded, encoder.read) == (0, [])
        assert names(gateway.catalog, "photo") == ["draw"]


async def test_only_what_is_new_or_changed_is_embedded(path: Path) -> None:
    async with started(path, OFFICE, encoder=ToyEncoder()):
        pass
    changed = running("office", DRAW, SEND, mcp_tool("reckon", "Multiply"), mcp_tool("wait"))
    async with started(path, changed, encoder=ToyEncoder()) as gateway:
        assert gateway.ingestion.embedded == 2


@pytest.mark.slow
async def test_another_encoder_embeds_anew_and_the_first_is_not_forgotten(path: Path) -> None:
    for encoder, embedded in (("toy:1", 3), ("toy:2", 3), ("toy:1", 0), ("toy:2", 0)):
        async with started(path, OFFICE, encoder=ToyEncoder(encoder)) as gateway:
            assert gateway.ingestion.embedded == embedded
            assert names(gateway.catalog, "photo") == ["draw"]


async def test_vectors_of_two_encoders_never_meet(path: Path) -> None:
    class Wider(ToyEncoder):
        def embed_queries(self, texts: Sequence[str]) -> Floats:
            return np.pad(super().embed_queries(texts), ((0, 0), (2, 0)))

    async with started(path, OFFICE, running("post", SEND), encoder=ToyEncoder()) as gateway:
        await gateway.catalog.use_encoder(Wider("wider"))
        # Until the new vectors are complete, the old index answers with the old encoder.
        assert names(gateway.catalog, "photo") == ["draw"]
        await gateway.catalog.caught_up()
        assert gateway.ingestion.embedded == 8
        assert names(gateway.catalog, "photo") == ["draw"]
        await gateway.catalog.use_encoder(None)
        await gateway.catalog.caught_up()
        assert gateway.catalog.snapshot.index.by_words_only
        assert names(gateway.catalog, "photo") == []
        assert names(gateway.catalog, "image") == ["draw"]


async def test_a_vector_is_stored_under_the_encoder_and_a_text_that_names_the_server(path: Path) -> None:
    encoder = ToyEncoder()
    async with started(path, running("one", DRAW), running("two", DRAW), encoder=encoder) as gateway:
        assert gateway.ingestion.embedded == 2
        texts = [tool.record.text for tool in gateway.catalog.snapshot.running]
        assert texts == ["one draw: Draw an image", "two draw: Draw an image"]
        assert sorted(encoder.read) == texts
        keys = [vector_key(text) for text in texts]
        assert len(set(keys)) == 2
        stored = await gateway.stored.vectors(keys, encoder.name)
        assert set(stored) == set(keys)
        np.testing.assert_allclose(np.frombuffer(stored[keys[0]], "<f4"), encoder.embed_queries(texts)[0])
        assert await gateway.stored.vectors(keys, "another") == {}
    async with started(path, running("renamed", DRAW), encoder=ToyEncoder()) as gateway:
        assert gateway.ingestion.embedded == 1


async def test_while_the_encoder_loads_search_goes_by_words_and_says_so() -> None:
    catalog = new_catalog()
    catalog.expect_encoder()
    catalog.on_state(OFFICE)
    await catalog.caught_up()
    loading = find(catalog, "draw an image")
    assert [hit.tool.name for hit in loading.tools] == ["draw"]
    assert loading.by_words_only
    assert find_response(loading).note == "Searched by words only: the encoder is still loading."
    nothing = find_response(find(catalog, "photo"))
    assert nothing.tools == []
    assert "No tool fits." in (nothing.note or "")
    assert "still loading" in (nothing.note or "")
    await catalog.use_encoder(ToyEncoder())
    await catalog.caught_up()
    ready = find(catalog, "photo")
    assert [hit.tool.name for hit in ready.tools] == ["draw"]
    assert (ready.by_words_only, find_response(ready).note) == (False, None)


async def test_if_no_encoder_can_be_loaded_nothing_is_said_to_be_loading() -> None:
    catalog = new_catalog()
    catalog.expect_encoder()
    catalog.on_state(OFFICE)
    await catalog.use_encoder(None)
    await catalog.caught_up()
    assert find_response(find(catalog, "draw an image")).note is None


async def test_tools_are_found_by_words_while_others_are_being_embedded(path: Path) -> None:
    loop, reached, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def wait() -> None:
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)

    async with started(path, OFFICE) as gateway:
        await gateway.catalog.use_encoder(ToyEncoder(on_batch=wait))
        async with asyncio.timeout(10):
            await reached.wait()
        assert names(gateway.catalog, "draw an image") == ["draw"]
        assert names(gateway.catalog, "photo") == []
        gateway.catalog.on_state(running("late", mcp_tool("sing", "Sing a song")))
        while not gateway.catalog.snapshot.of_server("late"):
            await gateway.catalog.changed()
        assert names(gateway.catalog, "sing a song") == ["sing"]
        go_on.set()
        await gateway.catalog.caught_up()
        assert names(gateway.catalog, "photo") == ["draw"]


async def test_an_encoder_that_is_ready_while_a_server_is_being_stored_reads_its_tools_once() -> None:
    stored, calls = asyncio.Event(), 0

    async def opened() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            # The first request for the database counts tokens; the second stores the tools.
            await stored.wait()

    counter, vocabulary, encoder = TokenCounter(), Vocabulary(), ToyEncoder()
    catalog = LiveCatalog(Ingestion(counter, vocabulary, opened), vocabulary, counter)
    catalog.on_state(OFFICE)
    while not catalog.snapshot.running:
        await catalog.changed()
    await catalog.use_encoder(encoder)
    stored.set()
    await catalog.caught_up()
    assert len(encoder.read) == 3
    assert names(catalog, "photo") == ["draw"]


async def test_servers_that_start_together_are_embedded_one_after_the_other(path: Path) -> None:
    busy, most = 0, 0

    class Watched(ToyEncoder):
        def embed_tools(self, texts: Sequence[str]) -> Floats:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            time.sleep(0.01)
            found = super().embed_tools(texts)
            busy -= 1
            return found

    states = [running(f"server{number}", DRAW) for number in range(6)]
    async with started(path, *states, encoder=Watched()) as gateway:
        assert gateway.ingestion.embedded == 6
    assert most == 1


async def test_closing_in_the_middle_stops_and_what_was_done_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_EMBED_BATCH", 2)
    many = running("many", *(mcp_tool(f"image_{number}", "Draw an image") for number in range(7)))
    async with started(path, many) as gateway:
        await gateway.catalog.use_encoder(ToyEncoder(on_batch=gateway.catalog.close))
        await gateway.catalog.caught_up()
        assert gateway.ingestion.embedded == 2
        # A closed catalog embeds nothing that comes later either.
        gateway.catalog.on_state(running("late", SEND))
        await gateway.catalog.caught_up()
        assert gateway.ingestion.embedded == 2
    async with started(path, many, encoder=ToyEncoder()) as gateway:
        assert gateway.ingestion.embedded == 5
        assert len(names(gateway.catalog, "photo")) == 5


async def test_progress_is_told_where_there_is_much_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline, "_EMBED_BATCH", 2)
    with caplog.at_level(logging.INFO):
        async with started(path, OFFICE, encoder=ToyEncoder()):
            pass
    told = [record.getMessage() for record in caplog.records if "Embedded" in record.getMessage()]
    assert told == ["Embedded 2 of 3 tools", "Embedded 3 of 3 tools"]


async def test_a_database_that_fails_does_not_stop_embedding(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with started(path, OFFICE) as gateway:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TABLE definition_vector")
            connection.commit()
        await gateway.catalog.use_encoder(ToyEncoder())
        await gateway.catalog.caught_up()
        assert gateway.ingestion.embedded == 3
        assert names(gateway.catalog, "photo") == ["draw"]
    assert "Embedding the tools again" in caplog.text
    assert "Cannot store vectors" in caplog.text


async def test_an_encoder_that_is_out_of_reach_leaves_tools_to_be_found_by_words(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(path, OFFICE, encoder=UnreachableEncoder()) as gateway:
        assert gateway.catalog.snapshot.index.by_words_only
        assert names(gateway.catalog, "draw an image") == ["draw"]
    assert "Tools of office are found by their words only: nobody answers" in caplog.text


async def test_a_server_that_left_is_not_found_by_meaning_either(path: Path) -> None:
    async with started(path, OFFICE, running("post", SEND), encoder=ToyEncoder()) as gateway:
        gateway.catalog.on_state(down("office"))
        assert names(gateway.catalog, "photo") == []
        assert names(gateway.catalog, "mail") == ["send_letter"]


async def test_an_encoder_that_cannot_be_loaded_is_logged_and_everything_else_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n")
    settings = load_settings({"database": "none", "encoder": str(tmp_path)})
    async with Optimizer([], settings) as optimizer:
        assert (await optimizer.find("anything")).tools == []
    assert "cannot be used" in caplog.text
    assert str(tmp_path) in caplog.text
