"""What the first call costs that has to start its server.

    python -m benchmarks.first_call --config FILE SERVER TOOL ARGUMENTS [--rounds 10]

FILE is a server file whose servers this gateway has listed before (it is done once at the beginning). Each round starts
a new gateway, waits until it is at rest, makes the first call and another one, and starts the server directly: its
handshake and the same call. Prints medians, and the processor time that the gateway itself took for the first call.
With --find REQUEST, each round searches before the first call, as a model does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.working_day import Client

REST = 14.0
"""Seconds after its first list at which a gateway has given back what only its start needed."""
THOUGHT = 3.0
"""Seconds that a model takes between a search and its call."""


@dataclass(frozen=True)
class Round:
    """Milliseconds."""

    direct: float
    first: float
    next: float
    processor: float
    """Processor time of the gateway's process during the first call."""


def processor_ms(process: int) -> float:
    """Processor time of all threads so far."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e6


@contextmanager
def client(command: list[str], environment: dict[str, str]) -> Iterator[Client]:
    made = Client(command, environment)
    try:
        yield made
    finally:
        made.leave()


def direct(entry: dict[str, Any], tool: str, arguments: dict[str, Any], environment: dict[str, str]) -> float:
    """Milliseconds from the start of the server to the answer."""
    began = time.perf_counter()
    with client([entry["command"], *entry.get("args", [])], {**environment, **entry.get("env", {})}) as server:
        check(server.ask("tools/call", {"name": tool, "arguments": arguments}))
        return (time.perf_counter() - began) * 1e3


def check(answer: dict[str, Any]) -> None:
    if "result" not in answer or answer["result"].get("isError"):
        raise SystemExit(f"the call failed: {answer}")


def timed(gateway: Client, call: dict[str, Any]) -> float:
    began = time.perf_counter()
    check(gateway.ask("tools/call", {"name": "call_tool", "arguments": call}))
    return (time.perf_counter() - began) * 1e3


def through(
    command: list[str], call: dict[str, Any], environment: dict[str, str], request: str = ""
) -> tuple[float, float, float]:
    """The first call, the next one, and the gateway's processor time during the first."""
    with client(command, environment) as gateway:
        gateway.ask("tools/list", {})
        time.sleep(REST)
        if request:
            check(gateway.ask("tools/call", {"name": "find_tool", "arguments": {"tool_description": request}}))
            time.sleep(THOUGHT)
        before = processor_ms(gateway.process)
        first = timed(gateway, call)
        return first, timed(gateway, call), processor_ms(gateway.process) - before


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--config", type=Path, required=True)
    asked.add_argument("--rounds", type=int, default=10)
    asked.add_argument("--program", default=f"{sys.executable} -m mcp_optimizer_gateway serve --alone")
    asked.add_argument("--find", default="", metavar="REQUEST")
    asked.add_argument("server")
    asked.add_argument("tool")
    asked.add_argument("arguments", type=json.loads)
    given = asked.parse_args()
    entry = json.loads(given.config.read_text())["mcpServers"][given.server]
    call = {"tool_name": given.tool, "server_name": given.server, "parameters": given.arguments}
    with tempfile.TemporaryDirectory() as home:
        homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), home)
        environment = {**os.environ, **homes}
        command = [*given.program.split(), "--config", str(given.config), "--servers", given.server]
        with client(command, environment) as gateway:
            timed(gateway, call)
            time.sleep(2)
        rounds = [
            Round(
                direct(entry, given.tool, given.arguments, environment),
                *through(command, call, environment, given.find),
            )
            for _ in range(given.rounds)
        ]
    for name in ("direct", "first", "next", "processor"):
        print(f"{name:10} {median(getattr(one, name) for one in rounds):8.1f} ms")
    print(f"{'more':10} {median(one.first - one.direct for one in rounds):8.1f} ms")


if __name__ == "__main__":
    main()
