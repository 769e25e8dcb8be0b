"""What a child prints without end, and what it leaves unread, costs the gateway no more than its bounds."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.limits import Limits
from mcp_optimizer.upstream.peer import Peer
from mcp_optimizer.upstream.request_errors import ExchangeLost
from mcp_optimizer.upstream.transports.stdio import ChildProcess, run_child
from tests.waiting import until

SMALL = Limits(message_bytes=1_000_000, pending_replies=8)
MEGABYTE = 1_000_000

ANSWERS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        size = asked["params"].get("size", 1)
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"text": "x" * size}}), flush=True)
"""


@asynccontextmanager
async def child(script: str, *arguments: object) -> AsyncIterator[tuple[Peer, ChildProcess]]:
    peer = Peer(lambda _method, _params: None, limits=SMALL)
    spec = ServerSpec("odd", Transport.STDIO, command=sys.executable, args=("-c", script, *map(str, arguments)))
    async with run_child(spec, peer) as running:
        yield peer, running


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def peak() -> int:
    return tracemalloc.get_traced_memory()[1]


@pytest.mark.process
async def test_a_line_without_an_end_is_given_up_and_not_kept(traced: None) -> None:
    async with child("import sys\nwhile True: sys.stdout.write('x' * 100_000)") as (peer, running):
        await asyncio.wait_for(peer.closed.wait(), 20)
        assert str(running.failure()) == "it prints an endless line on its stdout"
    assert peak() < 10 * MEGABYTE


@pytest.mark.process
async def test_an_answer_over_the_bound_fails_its_own_call_at_once_and_the_next_one_is_answered() -> None:
    async with child(ANSWERS) as (peer, _):
        small = asyncio.create_task(peer.request("tools/call", {"size": 3}, 20))
        with pytest.raises(ExchangeLost, match=r"limits\.message_bytes"):
            await peer.request("tools/call", {"size": 2 * MEGABYTE}, 20)
        assert await small == {"text": "xxx"}
        assert await peer.request("tools/call", {"size": 2}, 20) == {"text": "xx"}


@pytest.mark.process
async def test_stderr_without_line_ends_is_cut_and_progress_bars_are_lines(traced: None) -> None:
    script = (
        "import sys\nfor n in range(20_000): sys.stderr.write('x' * 1_000)\nsys.stderr.write('\\r50 %\\r100 %\\rdone')"
    )
    async with child(script) as (peer, running):
        await asyncio.wait_for(peer.closed.wait(), 20)
        await until(lambda: running.stderr_tail and running.stderr_tail[-1] == "done", timeout=20)
        first, *rest = running.stderr_tail
        assert (len(first), rest) == (SMALL.stderr_line, ["50 %", "100 %", "done"])
    assert peak() < 10 * MEGABYTE


FLOOD = """
import os, sys
ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n' * 100
sent = 0
while True:
    sent += os.write(1, ping)
    with open(sys.argv[1], "w") as file:
        file.write(str(sent))
"""


@pytest.mark.process
async def test_a_server_that_asks_and_never_reads_is_not_read_either(tmp_path: Path) -> None:
    count = tmp_path / "sent"
    async with child(FLOOD, count):
        before, now = -1, 0
        async with asyncio.timeout(30):
            while now != before or not now:
                await asyncio.sleep(0.5)
                before, now = now, int((count.read_text() if count.exists() else "") or 0)
    # A pipe's worth of answers, and buffers; it would have been hundreds of megabytes.
    assert now < 3 * MEGABYTE


@pytest.mark.process
async def test_what_is_sent_to_a_server_that_does_not_read_waits_outside_the_pipe(traced: None) -> None:
    async with child("import time; time.sleep(60)") as (peer, _):
        text = "x" * MEGABYTE
        calls = [asyncio.create_task(peer.request("tools/call", {"text": text}, 1)) for _ in range(50)]
        await asyncio.wait(calls)
    assert peak() < 12 * MEGABYTE
    assert all(call.exception() is not None for call in calls)


DEEP = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    deep = asked["params"].get("deep", 0)
    value = "[" * deep + "]" * deep or "1"
    print('{"jsonrpc": "2.0", "id": %d, "result": {"a": %s}}' % (asked["id"], value), flush=True)
"""


@pytest.mark.process
async def test_an_answer_that_cannot_be_read_fails_its_own_call_at_once() -> None:
    async with child(DEEP) as (peer, _):
        with pytest.raises(ExchangeLost, match="cannot be read"):
            await peer.request("tools/call", {"deep": 100_000}, 20)
        assert await peer.request("tools/call", {}, 20) == {"a": 1}
