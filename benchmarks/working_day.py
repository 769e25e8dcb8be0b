"""Processes and memory over a working day of three clients and thirty servers.

    python -m benchmarks.working_day [--program COMMAND] [--speed 240] [-- OPTIONS OF SERVE]

Forty calls an hour go to five of the servers. A day of eight hours passes in eight hours by `speed`, and so do ten
minutes without use. Each client has been there once before, as on any day but the first. The servers are small programs
that only write down their calls, so the memory is the gateways' and that of idle interpreters; other servers take more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

SERVER = Path(__file__).parents[1] / "tests" / "servers" / "counting.py"
SERVERS, USED, CLIENTS, CALLS_AN_HOUR, HOURS = 30, 5, 3, 40, 8
IDLE = 600.0
_MARK = "MCP_DAY"


class Client:
    """A client on stdio that waits for each answer."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment)
        self.process = self._process.pid
        self._last = 0
        about = {"name": "day", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about})
        self._say({"method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        self._say({"id": self._last, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._last:
                return answer
        raise SystemExit("the gateway ended")

    def call(self, server: int) -> bool:
        arguments = {"tool_name": "note", "server_name": f"s{server}", "parameters": {"text": "a"}}
        answer = self.ask("tools/call", {"name": "call_tool", "arguments": arguments})
        return not answer["result"].get("isError")

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()


def sample(mark: str) -> tuple[int, float]:
    """The number of processes that carry the mark, and their memory in megabytes; what they share is counted once."""
    count, memory = 0, 0.0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                rollup = (entry / "smaps_rollup").read_text()
                memory += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024
                count += 1
    return count, memory


@contextlib.contextmanager
def world() -> Iterator[tuple[Path, dict[str, str], str]]:
    """A server file, an environment for everything, and what marks it."""
    with tempfile.TemporaryDirectory() as folder:
        value = os.path.basename(folder)
        # A server gets no more of the environment than its entry says.
        entry = {"command": sys.executable, "args": ["-I", "-S", str(SERVER), f"{folder}/notes"], "env": {_MARK: value}}
        config = Path(folder) / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {f"s{number}": entry for number in range(SERVERS)}}))
        run = Path(folder) / "run"
        run.mkdir(mode=0o700)
        homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), folder)
        yield config, {**os.environ, **homes, "XDG_RUNTIME_DIR": str(run), _MARK: value}, f"{_MARK}={value}"


def day(command: list[str], environment: dict[str, str], mark: str, seconds: float) -> dict[str, Any]:
    """One day, in so many seconds."""
    clients = [Client(command, environment) for _ in range(CLIENTS)]
    chance = random.Random(1)
    calls = CALLS_AN_HOUR * HOURS
    due = sorted(chance.uniform(0, seconds) for _ in range(calls))
    samples, failed, began = [], 0, time.monotonic()
    while (now := time.monotonic() - began) < seconds:
        while due and due[0] <= now:
            due.pop(0)
            failed += not chance.choice(clients).call(chance.randrange(USED))
        samples.append(sample(mark))
        wait = min(1.0, (due[0] if due else seconds) - now)
        time.sleep(max(0.0, wait))
    for client in clients:
        client.leave()
    processes, memory = zip(*samples, strict=True)
    return {
        "calls": calls - len(due),
        "failed": failed,
        "processes": (round(mean(processes)), max(processes)),
        "megabytes": (round(mean(memory)), round(max(memory))),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--program", default=f"{sys.executable} -m mcp_optimizer_gateway")
    asked.add_argument("--speed", type=float, default=240.0)
    asked.add_argument("options", nargs="*")
    given = asked.parse_args()
    with world() as (config, environment, mark):
        options = [option.replace("IDLE", f"{IDLE / given.speed:.1f}") for option in given.options]
        command = [*shlex.split(given.program), "serve", "--encoder", "none", "--config", str(config), *options]
        before = Client(command, environment)
        unknown = set(range(SERVERS))
        while unknown:
            unknown = {number for number in unknown if not before.call(number)}
        before.leave()
        found = day(command, environment, mark, HOURS * 3_600 / given.speed)
    print(" ".join(given.options) or "as it is", found)


if __name__ == "__main__":
    main()
