"""The soak's hostile servers, one on stdio and one over HTTP, which show one hostile input after another."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from tests.conftest import ROOT
from tests.hostile.case import stdio_entry
from tests.hostile.deeds import HTTP, STDIO
from tests.hostile.inputs import INPUTS
from tests.hostile.mode import GOOD, FileMode

from benchmarks.clients import PlainClient
from benchmarks.processes import free_port

ON_STDIO, OVER_HTTP = "hostile", "hostile-far"
_LISTS = ("prompts/list", "resources/list", "resources/templates/list")


def is_hostile(pid: int) -> bool:
    """Whether this process is the hostile server on stdio."""
    try:
        return b"tests.hostile" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class Hostile:
    """Both hostile servers, and the clients that call them."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._files = {name: folder / f"{name}.mode" for name in (ON_STDIO, OVER_HTTP)}
        self.turn_good()
        for path in self._files.values():
            FileMode.log_of(path).touch()
        self._port = free_port()
        # A long run shows each input several times, so that all its thirds see the same; a short run shows only some.
        self._each = max(0.5, min(1.0, seconds / 900))
        self.entries: dict[str, dict[str, Any]] = {
            ON_STDIO: {**stdio_entry(self._files[ON_STDIO]), "timeout": 2},
            OVER_HTTP: {"type": "http", "url": f"http://127.0.0.1:{self._port}/mcp", "timeout": 2},
        }

    @asynccontextmanager
    async def server_over_http(self) -> AsyncIterator[None]:
        command = ["-m", "tests.hostile.http_server", HTTP, str(self._port), str(self._files[OVER_HTTP])]
        process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT)
        try:
            yield
        finally:
            process.kill()
            await process.wait()

    def turn_good(self) -> None:
        for path in self._files.values():
            FileMode.show(path, GOOD)

    async def show_all(self, http: httpx2.AsyncClient, url: str) -> None:
        """Show one input after another on each server until cancelled; in between, the server behaves for a moment."""
        await asyncio.gather(
            self._show(ON_STDIO, STDIO), self._show(OVER_HTTP, HTTP), self._poke(http, url, ON_STDIO),
            self._poke(http, url, OVER_HTTP),
        )  # fmt: skip

    async def _show(self, name: str, wire: str) -> None:
        chosen = [shown.name for shown in INPUTS.values() if wire in shown.transports and not shown.heavy]
        random.shuffle(chosen)
        for shown in itertools.cycle(chosen):
            FileMode.show(self._files[name], shown)
            await asyncio.sleep(self._each)
            FileMode.show(self._files[name], GOOD)
            await asyncio.sleep(self._each / 4)

    async def _poke(self, http: httpx2.AsyncClient, url: str, name: str) -> None:
        """Call and list, and ignore what comes back: only the soak's own calls must be answered."""
        client = PlainClient(http, url)
        await client.connect()
        for number in itertools.count(1):
            if number % 4:
                tool = random.choice(("poke", "repeat"))
                await client.attempt(number, "tools/call", {"name": tool, "arguments": {"value": "x"}})
                await client.attempt(number, "tools/call", {"name": f"{name}__{tool}", "arguments": {"value": "x"}})
            else:
                await client.attempt(number, _LISTS[number // 4 % len(_LISTS)], {})
            await asyncio.sleep(0.05)

    def shown(self) -> Counter[str]:
        lines = (FileMode.log_of(path).read_text(encoding="utf-8").splitlines() for path in self._files.values())
        return Counter(line for each in lines for line in each if line != "life")
