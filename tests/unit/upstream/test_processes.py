"""Starting and ending servers: what they leave behind, what environment they get, and what prevents a start."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.upstream.transports import processes
from tests.waiting import until

STUBBORN = Path(__file__).parents[2] / "servers" / "stubborn.py"

needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux' /proc")


def started(mark: str) -> list[int]:
    """The processes with a marker in their arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


async def until_count(mark: str, count: int) -> None:
    await until(lambda: len(started(mark)) == count, f"{count} processes with {mark}", 15)


@pytest.mark.process
@needs_proc
async def test_what_a_server_started_in_a_session_of_its_own_ends_with_it_and_not_with_another() -> None:
    first, second = (f"marker-{uuid.uuid4().hex}" for _ in range(2))
    specs = [
        ServerSpec("s", Transport.STDIO, sys.executable, (str(STUBBORN), "s", "session", mark))
        for mark in (first, second)
    ]
    one, other = [await processes.spawn(spec) for spec in specs]
    try:
        await until_count(first, 2)
        await until_count(second, 2)
        await processes.end(one)
        await until_count(first, 0)
        assert len(started(second)) == 2
    finally:
        await processes.end(one)
        await processes.end(other)
        await processes.release()
    # The last one is waited for.
    assert started(second) == []


@pytest.mark.process
async def test_a_server_is_told_how_deep_it_is_whatever_its_entry_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_OPTIMIZER_DEPTH", "1")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    spec = ServerSpec("s", Transport.STDIO, sys.executable, ("-c", code), env={"MCP_OPTIMIZER_DEPTH": "0"})
    process = await processes.spawn(spec)
    assert process.stdout is not None
    said = json.loads(await process.stdout.read())
    await processes.end(process)
    await processes.release()
    assert said["MCP_OPTIMIZER_DEPTH"] == "2"


@pytest.mark.parametrize(("said", "depth"), [("", 0), ("2", 2), ("many", 0), ("-1", 0), ("9" * 5_000, 0)])
def test_a_depth_that_is_no_number_counts_as_none(said: str, depth: int) -> None:
    assert processes.depth({"MCP_OPTIMIZER_DEPTH": said}) == depth


AT_THE_LIMIT = """
import asyncio, os, resource, sys
from mcp_optimizer.upstream.transports import processes
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport

async def main(free):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + free, hard))
    try:
        await processes.spawn(ServerSpec("s", Transport.STDIO, "/bin/cat"))
    except OSError as error:
        print(error)

loop = sys.argv[1]
if loop == "uvloop":
    import uvloop as loops
else:
    loops = asyncio
with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
    runner.run(main(int(sys.argv[2])))
"""


@pytest.mark.process
@needs_proc
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("free", [0, 3, 5])
def test_a_server_that_cannot_be_started_for_want_of_open_files_says_so(loop: str, free: int) -> None:
    command = [sys.executable, "-c", AT_THE_LIMIT, loop, str(free)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "the gateway may not open more files than" in done.stdout
    assert "ulimit -n" in done.stdout


@pytest.mark.process
@needs_proc
async def test_a_watcher_that_somebody_ended_is_replaced_and_told_of_all_servers() -> None:
    mark = f"marker-{uuid.uuid4().hex}"
    spec = ServerSpec("s", Transport.STDIO, sys.executable, (str(STUBBORN), "s", "term", mark))
    code = f"""
import asyncio, os, sys
from mcp_optimizer.upstream.transports import processes
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from tests.waiting import until

def children():
    return [int(child) for child in open(f"/proc/self/task/{{os.getpid()}}/children").read().split()]

async def main():
    spec = ServerSpec("s", Transport.STDIO, sys.executable, {spec.args!r})
    first = await processes.spawn(spec)
    # A thread starts the watcher.
    await until(lambda: len(children()) == 2, "the server and the watcher run")
    [watcher] = [child for child in children() if child != first.pid]
    os.kill(watcher, 9)
    os.waitpid(watcher, 0)
    # The first is told of in vain, and the next finds out.
    kept = [await processes.spawn(spec) for _ in range(2)]
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    gateway = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert gateway.stdout is not None
    try:
        assert await gateway.stdout.readline() == b"started\n"
        await until_count(mark, 3 + 1)
        gateway.kill()
        await gateway.wait()
        await until_count(mark, 0)
    finally:
        for number in started(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The platform is Windows, whose program that ends processes is a script; returns the file that it writes to."""
    said = tmp_path / "said"
    program = tmp_path / "System32" / "taskkill.exe"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {said}\nkill -9 "$4"\n')
    program.chmod(0o700)
    monkeypatch.setenv("SYSTEMROOT", str(tmp_path))
    monkeypatch.delattr(os, "killpg")
    monkeypatch.setattr(sys, "platform", "win32")
    return said


@pytest.mark.process
async def test_on_windows_a_server_that_does_not_end_is_ended_with_everything_below_it(
    windows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as here:
        here.setattr(sys, "platform", "linux")
        server = await processes.spawn(
            ServerSpec("s", Transport.STDIO, sys.executable, (str(STUBBORN), "s", "eof", "mark"))
        )
    await processes.end(server, grace=0.1)
    assert server.returncode == -signal.SIGKILL
    assert f"/T /F /PID {server.pid}" in windows.read_text().splitlines()
    await processes.release()


@pytest.mark.process
async def test_on_windows_a_server_itself_is_ended_even_if_the_program_that_ends_the_rest_is_missing(
    windows: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as here:
        here.setattr(sys, "platform", "linux")
        entry = ServerSpec("s", Transport.STDIO, sys.executable, (str(STUBBORN), "s", "eof", "mark"))
        server = await processes.spawn(entry)
    with monkeypatch.context() as here:
        here.setenv("SYSTEMROOT", str(tmp_path / "none"))
        await processes.end(server, grace=0.1)
    assert await processes.ended(server, 5)
    assert server.returncode == -signal.SIGKILL
    assert not windows.exists()
    await processes.release()
