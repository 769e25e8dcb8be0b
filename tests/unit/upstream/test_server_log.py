"""A server's log: its stderr and its life, bounded, without secrets, and with nothing hidden."""

from __future__ import annotations

import sys

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.limits import Limits
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.reporting import ServerLog
from mcp_optimizer.upstream.state import PoolOptions
from tests.unit.upstream.fake_server import FakeServer
from tests.unit.upstream.running_pool import running
from tests.waiting import until


def test_the_oldest_lines_are_dropped_beyond_a_number_and_beyond_a_size() -> None:
    log = ServerLog(Limits(log_lines=3, log_bytes=1_000), clock=lambda: 0.0)
    for number in range(10):
        log.said(f"line {number}")
    assert [str(line) for line in log.lines()] == [f"1970-01-01T00:00:00Z stderr: line {at}" for at in (7, 8, 9)]
    for _ in range(10):
        log.said("ä" * 499)
    assert sum(len(line.text.encode()) for line in log.lines()) <= 1_000


def test_a_line_is_one_line_and_shows_what_is_hidden() -> None:
    log = ServerLog(clock=lambda: 0.0)
    log.said("a\nb\x1b[31m c\u200bd " + "x" * 10_000)
    (line,) = log.lines()
    assert line.text.startswith(r"a b c\u{200b}d xxx")
    assert len(line.text) < 600


async def test_the_log_tells_of_starts_ends_and_changes() -> None:
    one = FakeServer()
    async with running(one=one) as servers:
        await servers.until_up()
        one.life.die("it exited with code 3")
        await servers.until_up(restarts=1)
        servers.pool.restart("one")
        await servers.until_up(restarts=2)
        told = [line.split(" ", 1)[1] for line in servers.pool.log("one")]
    assert told[0].startswith("gateway: runs; started in")
    assert told[1] == "gateway: is down: it exited with code 3"
    assert told[3] == "gateway: is restarted on request"


@pytest.mark.process
async def test_what_a_child_writes_to_stderr_is_in_its_log_without_its_secrets() -> None:
    greeting = (
        "import os, sys; token = os.environ['API_TOKEN']; print('began with', token, file=sys.stderr); "
        "print(token[:3] + chr(27) + '[1m' + token[3:], token[:9] + chr(0) + token[9:], file=sys.stderr)"
    )
    flood = "print(*range(100_000), sep='\\n', file=sys.stderr)"
    secret = {"API_TOKEN": "s3cret-Value-77"}
    spec = ServerSpec("one", Transport.STDIO, sys.executable, ("-c", f"{greeting}; {flood}"), secret)
    quiet = ServerSpec("two", Transport.STDIO, sys.executable, ("-c", greeting), secret)
    pool = UpstreamPool([spec, quiet], PoolOptions(longest_pause=60, first_pause=60), "1")
    pool.start()
    try:
        await until(lambda: {state.status for state in pool.states()} == {ServerStatus.FAILED})
        many, few = pool.log("one"), pool.log("two")
    finally:
        await pool.stop()
    assert len(many) <= 200
    assert any(line.endswith("stderr: 99999") for line in many)
    assert any("began with [redacted: API_TOKEN]" in line for line in few)
    assert any("stderr: [redacted: API_TOKEN] [redacted: API_TOKEN]" in line for line in few)
    assert not any("s3cret" in line for line in (*many, *few))
