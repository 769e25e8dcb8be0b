"""Processes that benchmarks start, and what Linux says about them in /proc: memory, processor time, children."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def process(*command: str, port: int, stderr: Any = asyncio.subprocess.DEVNULL) -> AsyncIterator[int]:
    """Start a process, wait until it listens, yield its id; terminate it at the end."""
    started = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, stderr=stderr)
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    break
        yield started.pid
    finally:
        started.terminate()
        await started.wait()


def private_mb(pid: int) -> float:
    """Memory that a process shares with no other; 0 without a process."""
    if not pid:
        return 0.0
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    private = [int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")]
    return sum(private) / 1024


def resident_mb(pid: int | None = None) -> float:
    """Resident memory of a process, of this one if none is given."""
    for line in Path(f"/proc/{pid or 'self'}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """The ids of a process's children, whichever thread started them."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in tasks for child in path.read_text().split()]
