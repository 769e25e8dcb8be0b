"""One bad server affects no other. A refusal, a lost call and a server that is gone are handled differently."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_optimizer import Optimizer
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CallLost, CallTimeout, UpstreamRefusal
from mcp_optimizer.limits import Limits
from mcp_optimizer.upstream.session import UpstreamSession
from tests.conftest import WriteServers, plain_server
from tests.waiting import until

SAID = "what a server said"


def status_of(optimizer: Optimizer, name: str) -> ServerStatus:
    return next(state.status for state in optimizer.servers() if state.name == name)


@pytest.mark.promise("independent-servers")
async def test_a_fault_of_ours_in_one_servers_loop_ends_that_server_alone_and_is_logged(
    write_servers: WriteServers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listing = UpstreamSession.list_tools

    async def faulty(self: UpstreamSession, *given: Any) -> Any:
        if self.name == "cursed":
            raise KeyError(SAID)
        return await listing(self, *given)

    monkeypatch.setattr(UpstreamSession, "list_tools", faulty)
    config = write_servers({"cursed": plain_server("cursed"), "well": plain_server("well")})
    async with Optimizer.from_config(config, restart_pause=0.05, restart_pause_max=0.05) as optimizer:
        await until(
            lambda: any(state.name == "cursed" and state.restarts >= 2 for state in optimizer.servers()), timeout=20
        )
        assert (await optimizer.call("echo", {"value": "here"}, "well"))["content"]
        assert status_of(optimizer, "well") is ServerStatus.RUNNING
    [error, *_] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "cursed" in error.getMessage()
    assert "list_tools" in error.getMessage()
    assert SAID not in caplog.text


async def test_whoever_listens_to_the_pool_may_fail_and_servers_go_on(
    write_servers: WriteServers, caplog: pytest.LogCaptureFixture
) -> None:
    optimizer = Optimizer.from_config(write_servers({"well": plain_server("well")}))

    def faulty(_state: Any) -> None:
        raise ValueError("a fault")

    optimizer.news.listen(faulty)
    async with optimizer:
        assert (await optimizer.call("echo", {"value": "here"}))["content"]
    assert "Cannot process news from the server well" in caplog.text


@asynccontextmanager
async def http_server(answer: Any) -> AsyncIterator[str]:
    """A legacy server whose tools/call is answered by `answer(writer, message)`; everything else works."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:")
                message = json.loads(await reader.readexactly(length))
                await (answer(writer, message) if message["method"] == "tools/call" else reply(writer, message))
        except (asyncio.IncompleteReadError, ConnectionError, StopIteration):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


async def send(writer: asyncio.StreamWriter, message: Any, status: int = 200) -> None:
    body = json.dumps(message).encode()
    head = f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def reply(writer: asyncio.StreamWriter, message: Any) -> None:
    results: dict[str, Any] = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}},
        "tools/list": {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]},
        "ping": {},
    }
    if "id" not in message:
        writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
    elif (result := results.get(message["method"])) is not None:
        await send(writer, {"jsonrpc": "2.0", "id": message["id"], "result": result})
    else:
        error = {"code": -32601, "message": "unknown"}
        await send(writer, {"jsonrpc": "2.0", "id": message["id"], "error": error})


async def test_a_refusal_is_a_refusal_whatever_its_code(write_servers: WriteServers) -> None:
    async def limited(writer: asyncio.StreamWriter, message: Any) -> None:
        error = {"code": -32000, "message": "rate limited"}
        await send(writer, {"jsonrpc": "2.0", "id": message["id"], "error": error})

    async with http_server(limited) as url, Optimizer.from_config(write_servers({"far": {"url": url}})) as optimizer:
        with pytest.raises(UpstreamRefusal, match="rate limited"):
            await optimizer.call("go")
        assert status_of(optimizer, "far") is ServerStatus.RUNNING


async def test_one_dropped_answer_is_one_lost_call_and_the_others_are_answered(write_servers: WriteServers) -> None:
    is_under_way, release_streams = asyncio.Event(), asyncio.Event()

    async def dropping(writer: asyncio.StreamWriter, message: Any) -> None:
        if message["params"]["arguments"].get("drop"):
            writer.close()
            return
        is_under_way.set()
        await release_streams.wait()
        await send(writer, {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})

    async with http_server(dropping) as url, Optimizer.from_config(write_servers({"far": {"url": url}})) as optimizer:
        other = asyncio.create_task(optimizer.call("go"))
        await asyncio.wait_for(is_under_way.wait(), 10)
        with pytest.raises(CallLost, match="broke in this call"):
            await optimizer.call("go", {"drop": True})
        # Longer than the checks that a lost call triggers take.
        await asyncio.sleep(1)
        assert status_of(optimizer, "far") is ServerStatus.RUNNING
        release_streams.set()
        assert (await other)["content"] == []


async def test_progress_holds_a_call_open_no_longer_than_any_call_may_take(write_servers: WriteServers) -> None:
    async def for_ever(writer: asyncio.StreamWriter, message: Any) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        number = 0
        while not writer.is_closing():
            number += 1
            params = {"progressToken": message["id"], "progress": number}
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            writer.write(b"data: " + json.dumps(note).encode() + b"\n\n")
            await writer.drain()
            await asyncio.sleep(0.1)

    async with http_server(for_ever) as url:
        config = write_servers({"far": {"url": url}})
        async with Optimizer.from_config(config, call_timeout=0.5, limits=Limits(call_seconds=1.5)) as optimizer:
            with pytest.raises(CallTimeout, match=r"was not done after 1\.5 s"):
                await asyncio.wait_for(optimizer.call("go"), 20)
