"""The first search and the first call wait for servers that have just begun to start, and deny nothing too early."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import pytest
import tiktoken

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import UnknownTool
from mcp_optimizer.gateway.servers import StartingServers
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import down, live_catalog, mcp_tool, new_gateway, running
from tests.waiting import until

NOTE = mcp_tool("write_note", "Write a note into the notebook")
CARD = mcp_tool("create_card", "Create a card on a board")


def starting(name: str, seconds: float = 0.0) -> UpstreamState:
    return replace(down(name, "", ServerStatus.STARTING), since=time.time() - seconds)


async def test_a_search_waits_for_the_server_that_has_what_it_asks_for() -> None:
    catalog = await live_catalog(running("kanban", CARD), starting("notes"), starting("hangs"))
    asked = asyncio.create_task(new_gateway(catalog).search("write a note", detail=Detail.SIGNATURE))
    assert not (await asyncio.wait([asked], timeout=0.05))[0]
    catalog.on_state(replace(running("notes", NOTE), since=time.time()))
    found = await asyncio.wait_for(asked, 5)
    assert found.tools[0].tool.name == "write_note"
    assert "Still starting, not searched yet: hangs." in found.text


async def test_a_search_that_finds_what_it_asks_for_waits_for_no_other_server() -> None:
    catalog = await live_catalog(running("kanban", CARD), starting("hangs"))
    found = await asyncio.wait_for(new_gateway(catalog).search("create a card on a board"), 5)
    assert found.tools[0].tool.name == "create_card"


async def test_a_call_waits_for_the_server_of_its_tool() -> None:
    catalog = await live_catalog(running("kanban", CARD), starting("notes"))
    asked = asyncio.create_task(new_gateway(catalog).call("write_note", {}))
    assert not (await asyncio.wait([asked], timeout=0.05))[0]
    catalog.on_state(replace(running("notes", NOTE), since=time.time()))
    assert (await asyncio.wait_for(asked, 5))["content"][0]["text"] == "done"


async def test_a_server_that_has_been_starting_for_long_delays_nothing() -> None:
    gateway = new_gateway(await live_catalog(running("kanban", CARD), starting("hangs", seconds=60)))
    found = await asyncio.wait_for(gateway.search("write a note", detail=Detail.SIGNATURE), 5)
    assert "Still starting, not searched yet: hangs." in found.text
    assert "No tool fits" not in found.text or found.tools
    with pytest.raises(UnknownTool):
        await asyncio.wait_for(gateway.call("write_note", {}), 5)


async def test_waiting_ends_after_a_while_whatever_the_server_does() -> None:
    catalog = await live_catalog(starting("hangs"))

    async def view() -> Snapshot:
        return catalog.snapshot

    async def never(_: Snapshot) -> bool:
        return False

    assert await asyncio.wait_for(StartingServers(catalog, lambda _server, _caller: None, 0.05).wait(view, never), 5)


async def test_the_tokenizer_is_loaded_while_the_server_starts_and_never_by_the_event_loop() -> None:
    loaders: list[str] = []

    class Watched(TokenCounter):
        @property
        def encoding(self) -> tiktoken.Encoding:
            loaders.append(threading.current_thread().name)
            return super().encoding

    catalog = await live_catalog(running("kanban", CARD), running("notes", NOTE))
    gateway = new_gateway(catalog, counter=Watched())
    catalog.on_state(starting("notes"))
    loaders.clear()
    asked = asyncio.create_task(gateway.call("write_note", {}))
    await until(lambda: loaders)
    assert not asked.done()
    catalog.on_state(replace(running("notes", NOTE), since=time.time()))
    assert (await asyncio.wait_for(asked, 5))["content"][0]["text"] == "done"
    # A server that runs is called at once, and its tool was never compressed.
    quick = new_gateway(catalog, counter=Watched())
    await quick.call("create_card", {})
    assert threading.main_thread().name not in loaders
