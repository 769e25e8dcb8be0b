"""Many clients at once over HTTP: a thousand that only listen, two hundred that call.

python -m benchmarks.clients [--idle 1000] [--busy 200]: legacy clients, each with a session and an open
stream, written on plain HTTP, because so many of the SDK's clients would measure themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.gateway import ECHO, _memory, free_port, process

RESULT = Path(__file__).parent / "results" / "clients.md"
_MODERN = "2026-07-28"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class PlainClient:
    """Just enough of a client, of either era."""

    def __init__(self, http: httpx2.AsyncClient, url: str, *, is_modern: bool = False) -> None:
        self._http = http
        self._url = url
        self._headers = dict(_ACCEPT)
        self._is_modern = is_modern
        self.stream: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        if self._is_modern:
            self._headers["mcp-protocol-version"] = _MODERN
            return
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "many", "version": "1"}}
        response = await self._post({"id": 0, "method": "initialize", "params": params})
        self._headers["mcp-session-id"] = response.headers["mcp-session-id"]
        self._headers["mcp-protocol-version"] = "2025-11-25"
        await self._post({"method": "notifications/initialized"})

    async def request(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request: the message with the result, or with the error."""
        response = await self._post({"id": number, "method": method, "params": params})
        body = response.text
        if response.headers["content-type"].startswith("text/event-stream"):
            body = [line.removeprefix("data:") for line in body.splitlines() if line.startswith("data:")][-1]
        assert body.strip(), f"a stream without an answer: {response.text[-500:]!r}"
        message: dict[str, Any] = json.loads(body)
        return message

    async def attempt(self, number: int, method: str, params: dict[str, Any]) -> None:
        """A request whose answer does not matter, nor whether there is one."""
        with contextlib.suppress(httpx2.HTTPError, AssertionError, ValueError, LookupError):
            await self.request(number, method, params)

    async def listen(self) -> None:
        """Keep a stream open, as a client does that wants to be told of changes."""
        opened = asyncio.Event()

        async def read() -> None:
            async with self._http.stream("GET", self._url, headers=self._headers) as response:
                assert response.status_code == 200
                opened.set()
                async for _ in response.aiter_bytes():
                    pass

        self.stream = asyncio.create_task(read())
        await opened.wait()

    async def call(self, number: int) -> float:
        started = time.perf_counter()
        params = {"name": "echo", "arguments": {"text": f"call {number}"}}
        response = await self._post({"id": number, "method": "tools/call", "params": params})
        assert f"call {number}" in response.text, response.text
        return time.perf_counter() - started

    async def _post(self, message: dict[str, Any]) -> httpx2.Response:
        headers = self._headers
        if self._is_modern:
            params = message.setdefault("params", {})
            params["_meta"] = {"io.modelcontextprotocol/protocolVersion": _MODERN, _CAPABILITIES: {}}
            headers = {**headers, "mcp-method": message["method"]}
            if "name" in params:
                headers["mcp-name"] = params["name"]
        response = await self._http.post(self._url, json={"jsonrpc": "2.0", **message}, headers=headers)
        assert response.status_code in (200, 202, 400), response.text
        return response

    async def leave(self) -> None:
        """End the session, as clients do when they are closed."""
        if "mcp-session-id" in self._headers:
            await self._http.delete(self._url, headers=self._headers)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle", type=int, default=1_000)
    parser.add_argument("--busy", type=int, default=200)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mcp.json"
        entry = {"command": sys.executable, "args": [str(ECHO)]}
        config.write_text(json.dumps({"mcpServers": {"echo": entry}}), encoding="utf-8")
        command = [sys.executable, "-m", "mcp_optimizer", "serve", "--config", str(config), "--mode", "transparent"]
        command += ["--encoder", "none", "--database", "none", "--http", f"127.0.0.1:{port}"]
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        async with (
            process(*command, port=port) as pid,
            httpx2.AsyncClient(timeout=httpx2.Timeout(120), limits=limits) as http,
        ):
            while (await http.get(f"http://127.0.0.1:{port}/ready")).status_code != 200:
                await asyncio.sleep(0.2)
            first = PlainClient(http, url)
            await first.connect()
            alone = [await first.call(number) for number in range(1, 60)]
            before = _memory(pid)
            idle = [PlainClient(http, url) for _ in range(options.idle)]
            for group in range(0, len(idle), 50):
                await asyncio.gather(*(client.connect() for client in idle[group : group + 50]))
                await asyncio.gather(*(client.listen() for client in idle[group : group + 50]))
            with_idle = _memory(pid)
            among_idle = [await first.call(number) for number in range(100, 160)]
            busy = [PlainClient(http, url) for _ in range(options.busy)]
            await asyncio.gather(*(client.connect() for client in busy))
            started = time.perf_counter()

            async def work(client: PlainClient) -> list[float]:
                return [await client.call(number) for number in range(1, options.calls + 1)]

            taken = [seconds for times in await asyncio.gather(*map(work, busy)) for seconds in times]
            rate = len(taken) / (time.perf_counter() - started)
            text = "\n".join(
                [
                    f"- {options.idle} idle clients with open streams: {with_idle - before:.0f} MB more "
                    f"({1_000 * (with_idle - before) / max(1, options.idle):.0f} kB each); a call among them takes "
                    f"{statistics.median(among_idle) / statistics.median(alone):.2f} times as long as alone",
                    f"- {options.busy} busy clients beside them: {len(taken)} calls, all answered, {rate:.0f} calls/s; "
                    f"p50 {1_000 * statistics.median(taken):.0f} ms, longest {1_000 * max(taken):.0f} ms",
                ]
            )
            print(text)
            if options.write:
                RESULT.write_text(f"# Many clients\n\n`python -m benchmarks.clients`\n\n{text}\n", encoding="utf-8")
            for client in idle:
                if client.stream is not None:
                    client.stream.cancel()


if __name__ == "__main__":
    asyncio.run(main())
