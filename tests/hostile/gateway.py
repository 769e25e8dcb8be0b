"""A gateway in its own process, with everything that can be observed from outside; for tests and measurements."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
from benchmarks.clients import PlainClient

from tests.conftest import ROOT, Entry
from tests.hostile.witness import Witness

MOST_MEGABYTES = 6_000
"""Maximum address space of a gateway under attack, so that it fails before the machine does."""

OPTIONS = (
    "--database=none", "--encoder=none", "--log-format=json", "--start-timeout=3", "--call-timeout=2",
    "--restart-pause=0.05", "--restart-pause-max=0.2", "--shutdown-timeout=2",
)  # fmt: skip


class GatewayProcess:
    """One gateway process: its address, its memory and its stderr."""

    def __init__(
        self, folder: Path, config: Path, *options: str, over_http: bool = True, megabytes: int = MOST_MEGABYTES
    ) -> None:
        self._report = folder / f"report-{time.monotonic_ns()}.json"
        self._words = self._report.with_suffix(".stderr")
        port = self.port = free_port()
        self.origin = f"http://127.0.0.1:{port}"
        self.url = f"{self.origin}/mcp"
        where = [f"--http=127.0.0.1:{port}"] if over_http else []
        module = ["-m", "tests.hostile.gateway_process", str(self._report), str(megabytes)]
        command = [sys.executable, *module, "serve", f"--config={config}", *OPTIONS, *where, *options]
        pipe = None if over_http else subprocess.PIPE
        with self._words.open("wb") as words:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stderr=words, stdin=pipe, stdout=pipe or subprocess.DEVNULL
            )
        if over_http:
            self._until_it_listens(port)

    def _until_it_listens(self, port: int) -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until and self.is_alive:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.05)
        raise AssertionError(f"the gateway does not listen: {self.words[-2_000:]}")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def words(self) -> str:
        return self._words.read_text(encoding="utf-8", errors="replace")

    async def report(self, seconds: float = 20.0) -> dict[str, Any]:
        """What the process observed since the last report; empty if it does not respond."""
        self._report.unlink(missing_ok=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.is_alive:
            if self._report.exists():
                seen: dict[str, Any] = json.loads(self._report.read_text(encoding="utf-8"))
                return seen
            await asyncio.sleep(0.02)
        return {}

    async def problems(self) -> list[str]:
        """The end of the process, unhandled exceptions, and exceptions in its log."""
        if not self.is_alive:
            return [f"the gateway ended with {self.process.returncode}: {self.words[-1_500:]}"]
        seen = await self.report()
        if not seen:
            return ["the gateway's event loop does not turn"]
        lines = [line for line in self.words.splitlines() if re.search(r'"exception"|Traceback', line)]
        return [
            *(f"unhandled: {text}" for text in seen["unhandled"]),
            *(f"logged: {line[:1_500]}" for line in lines[:5]),
        ]

    def memory(self, field: str = "VmRSS") -> float:
        """Memory in megabytes: VmRSS is the current value, VmHWM the peak since `forget_peak`."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith(f"{field}:"):
                    return int(line.split()[1]) / 1_000
        return 0.0

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def stop(self) -> float:
        """Stop the process as an operator would. Returns the seconds that it took."""
        started = time.monotonic()
        if self.is_alive:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return time.monotonic() - started


class Standing:
    """One gateway for many inputs, replaced after each failure, so that failures are independent."""

    def __init__(self, folder: Path, entries: dict[str, Entry], *, over_http: bool = True) -> None:
        self._folder = folder
        self._config = folder / "mcp.json"
        self._config.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
        self._over_http = over_http
        self._gateway: GatewayProcess | None = None

    def gateway(self) -> GatewayProcess:
        if self._gateway is None:
            self._gateway = GatewayProcess(self._folder, self._config, over_http=self._over_http)
        return self._gateway

    def end(self) -> None:
        if self._gateway is not None:
            self._gateway.stop()
            self._gateway = None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class HttpWitness(Witness):
    """A witness over HTTP, of either era."""

    def __init__(self, http: httpx2.AsyncClient, url: str, *, is_modern: bool, pause: float = 0.02) -> None:
        self._client = PlainClient(http, url, is_modern=is_modern)
        self._number = 0
        super().__init__(self._request, pause)

    async def connect(self) -> None:
        await self._client.connect()

    async def _request(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message = await self._client.request(number, "tools/call", {"name": tool, "arguments": arguments})
        if message.get("id") != number:
            raise AssertionError(f"answered to another request: {message.get('id')}")
        result: dict[str, Any] = message.get("result") or {"isError": True, **message}
        return result
