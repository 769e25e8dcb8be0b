"""Profiles of a catalog of 3,000 real tools: their tokens, and the time of tools/list.

    python -m benchmarks.definitions.registration

Twelve servers replay the tools of the dumps. For each profile, the gateway starts several times with an empty database,
and once more with the database that the last of these starts left. A plain client on stdio times the first tools/list
and counts the tokens of the message as it arrived, with tiktoken and the published rank table and nothing of ours.
With the minimal profile, it then calls unlisted tools until one of them is registered, and times that. Writes
`benchmarks/results/registration.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiktoken

from benchmarks.paths import REPLAY_SERVER, RESULTS
from benchmarks.processes import processor_seconds
from benchmarks.tools import real_tools
from mcp_optimizer.domain.own_tools import OWN_TOOLS
from mcp_optimizer.token_counter import VOCABULARIES, read_words

RESULT = RESULTS / "registration.md"
PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"""
    r"""|\s+(?!\S)|\s"""
)
TOOLS = 3_000
SERVERS = 12
FIRST_STARTS = 5
BUDGETS = {"minimal": 9_000, "standard": 20_000, "full": None}
LIMIT = 1 << 28


def plain_encoding() -> tiktoken.Encoding:
    ranks = {word: rank for rank, word in enumerate(read_words(VOCABULARIES["cl100k_base"]))}
    return tiktoken.Encoding(name="plain", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


class Wire:
    """A client that returns each response as the line that arrived."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._last = 0

    def processor_seconds(self) -> float:
        """The gateway's processor time so far: on a busy machine, the steadier clock."""
        return processor_seconds(self._process.pid)

    async def ask(self, method: str, **params: Any) -> str:
        self._last += 1
        self._send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode():
            if json.loads(line).get("id") == self._last:
                return line
        raise SystemExit("the gateway ended")

    def tell(self, method: str) -> None:
        self._send({"jsonrpc": "2.0", "method": method})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(await self.ask("tools/call", name=name, arguments=arguments))["result"]
        return result


@asynccontextmanager
async def gateway(config: Path, database: Path, profile: str) -> AsyncIterator[Wire]:
    options = ["--config", config, "--database", database, "--profile", profile, "--encoder", "none"]
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "mcp_optimizer", "serve", "--alone", *map(str, options)],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LIMIT,
    )
    wire = Wire(process)
    info = {"name": "registration-benchmark", "version": "1"}
    await wire.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
    wire.tell("notifications/initialized")
    try:
        yield wire
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


@dataclass(frozen=True)
class Measured:
    """One start: the time until all tools were there, the first list of them, what it contains and costs."""

    ready: float
    first_list: float
    first_list_processor: float
    second_list: float
    listed: str
    tokens: int
    tools: int


async def measure(
    config: Path, database: Path, profile: str, encoding: tiktoken.Encoding, *, lazily: bool = False
) -> tuple[Measured, str]:
    started = time.perf_counter()
    async with gateway(config, database, profile) as wire:
        while json.loads((await wire.call("list_tools"))["content"][0]["text"])["total"] < TOOLS:
            await asyncio.sleep(0.02)
        ready = time.perf_counter() - started
        began, used = time.perf_counter(), wire.processor_seconds()
        line = await wire.ask("tools/list")
        first, used = time.perf_counter() - began, wire.processor_seconds() - used
        began = time.perf_counter()
        again = await wire.ask("tools/list")
        second = time.perf_counter() - began
        tools = json.loads(line)["result"]["tools"]
        text = line[line.index('"tools":') : line.rindex("]") + 1]
        assert json.loads(f"{{{text}}}")["tools"] == tools == json.loads(again)["result"]["tools"]
        measured = Measured(ready, first, used, second, text, len(encoding.encode_ordinary(f"{{{text}}}")), len(tools))
        lazy = await first_use(wire, {tool["name"] for tool in tools}) if lazily else ""
    return measured, lazy


async def first_use(wire: Wire, listed: set[str]) -> str:
    """Call unlisted tools until one of them becomes listed, and say how long that call and the next list took."""
    offset = 0
    while True:
        page = json.loads((await wire.call("list_tools", offset=offset))["content"][0]["text"])
        for tool in page["tools"]:
            if tool["name"] in listed:
                continue
            began = time.perf_counter()
            answer = await wire.call("call_tool", tool_name=tool["name"], parameters={})
            called = time.perf_counter() - began
            if answer.get("isError"):
                continue
            began = time.perf_counter()
            line = await wire.ask("tools/list")
            again = time.perf_counter() - began
            if any(entry["name"] == tool["name"] for entry in json.loads(line)["result"]["tools"]):
                plain = time.perf_counter()
                await wire.call("call_tool", tool_name=tool["name"], parameters={})
                plain = time.perf_counter() - plain
                return (
                    f"A tool's first call, which registers it: {called * 1e3:.0f} ms; its second call: "
                    f"{plain * 1e3:.0f} ms; the list with it: {again * 1e3:.0f} ms."
                )
        if "next_offset" not in page:
            return "No tool was registered on its first use."
        offset = page["next_offset"]


def write_servers(folder: Path) -> Path:
    tools = [tool.model_dump(mode="json") for tool in real_tools(TOOLS)]
    servers = {}
    for number in range(SERVERS):
        dump = folder / f"tools{number}.json"
        dump.write_text(json.dumps(tools[number::SERVERS]), encoding="utf-8")
        servers[f"replay{number}"] = {"command": sys.executable, "args": [str(REPLAY_SERVER), str(dump)]}
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return config


def span(seconds: Iterable[float]) -> str:
    found = sorted(seconds)
    return f"{found[0]:.2f} to {found[-1]:.2f}"


async def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    encoding = plain_encoding()
    rows, notes = [], []
    with tempfile.TemporaryDirectory() as folder:
        config = write_servers(Path(folder))
        for profile, budget in BUDGETS.items():
            first_starts = []
            for number in range(FIRST_STARTS):
                database = Path(folder) / f"{profile}{number}.db"
                first_starts.append((await measure(config, database, profile, encoding))[0])
            warm, lazy = await measure(config, database, profile, encoding, lazily=profile == "minimal")
            same = "identical" if all(cold.listed == warm.listed for cold in first_starts) else "DIFFERENT"
            within = "" if budget is None else " ✓" if warm.tokens <= budget else " OVER"
            cells = [profile, f"{warm.tools - len(OWN_TOOLS):,}", f"{warm.tokens:,}{within}", f"{budget or '–'}"]
            cells += [span(cold.first_list for cold in first_starts)]
            cells += [span(cold.first_list_processor for cold in first_starts)]
            cells += [f"{taken:.2f}" for taken in (warm.first_list, warm.first_list_processor, warm.second_list)]
            cells += [span(cold.ready for cold in first_starts), f"{warm.ready:.1f}", same]
            rows.append(f"| {' | '.join(cells)} |")
            print(rows[-1], flush=True)
            notes += [lazy] if lazy else []
    text = "\n".join(
        [
            "# Profiles of a catalog of 3,000 tools",
            "",
            "Measured with `python -m benchmarks.definitions.registration` (two cores, shared with other work): 3,000",
            "real tools of 12 servers, the gateway as a process of its own, a plain client on stdio. Seconds from",
            f"asking tools/list, once all servers are up, to the whole answer: at {FIRST_STARTS} very first starts",
            "(nothing in the database) and at a next one. Tokens (cl100k_base) are counted over the message as it",
            "arrived, our own tools included.",
            "",
            "| profile | tools | tokens | budget | first list, cold | of that, processor | first list, warm | "
            "of that, processor | later lists | all servers up, cold | warm | after a restart |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
            *rows,
            "",
            *notes,
            f"Load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors.",
            "",
        ]
    )
    RESULT.write_text(text, encoding="utf-8")
    print(*notes)


if __name__ == "__main__":
    asyncio.run(main())
