"""Sends thousands of changed messages, as servers and as clients, on all transports, to a gateway in its own process.

Meanwhile witnesses of both eras call over HTTP, and one over the stdio of a second gateway.
`python -m tests.hostile` runs it, and so does a test, with fewer messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
from benchmarks.clients import PlainClient

from tests.conftest import Entry
from tests.hostile.case import stdio_entry
from tests.hostile.client_inputs import LEGACY, ClientInput
from tests.hostile.client_messages import CLIENT_MESSAGES, ODD_HEADERS
from tests.hostile.deeds import HTTP, HTTP_MODERN, SSE
from tests.hostile.gateway import GatewayProcess, HttpWitness
from tests.hostile.hostile_client import HostileClient
from tests.hostile.http_server import hostile_http
from tests.hostile.mode import GOOD, MUTATED, FileMode, HeldMode
from tests.hostile.mutate import Mutator
from tests.hostile.stdio_witness import StdioWitness
from tests.hostile.witness import NAME, Witness, watching, witness_server

_OVER_HTTP = {"http-0": HTTP, "http-1": HTTP, "modern-0": HTTP_MODERN, "modern-1": HTTP_MODERN, "sse-0": SSE}
_OVER_STDIO = {"stdio-0": False, "stdio-1": False, "stdio-modern": True}
_CLIENTS = 6
_POKERS = 3
"""Clients per hostile server; several, because most of their calls wait for a response that never comes."""
_RECOVERED = 60.0
_LONGEST = 30.0
"""Seconds after which a request counts as never answered; every deadline of the gateway is shorter."""
_UNLIMITED = httpx2.Limits(max_connections=None, max_keepalive_connections=None)


class Campaign:
    """One run with a seed, until `count` messages were sent."""

    def __init__(self, count: int, seed: int, folder: Path) -> None:
        self.count = count
        self.seed = seed
        self._folder = folder
        self._modes: dict[str, HeldMode] = {}
        self._files = {name: folder / name for name in _OVER_STDIO}
        self._stopped = asyncio.Event()
        self.sent: Counter[str] = Counter()
        self.recent: deque[str] = deque(maxlen=40)
        self.problems: list[str] = []
        self.witness_calls = 0
        self.longest_wait = 0.0
        self.longest_stop = 0.0
        self.memory: list[float] = []
        self.seconds = 0.0

    @property
    def done(self) -> int:
        return sum(self.sent.values()) + sum(len(mode.deeds) for mode in self._modes.values()) + self._written()

    def _written(self) -> int:
        """How many messages the child processes changed. Lines of their log without a space count starts instead."""
        return sum(FileMode.log_of(path).read_bytes().count(b" ") for path in self._files.values())

    async def run(self, progress: Callable[[str], None] = lambda _text: None) -> None:
        started = time.monotonic()
        async with AsyncExitStack() as stack:
            entries: dict[str, Entry] = {NAME: witness_server()}
            for number, (name, wire) in enumerate(_OVER_HTTP.items()):
                mode = self._modes[name] = HeldMode(MUTATED)
                url = await stack.enter_async_context(hostile_http(wire, mode, seed=self.seed + number))
                entries[name] = {"type": "sse" if wire == SSE else "http", "url": url}
            for number, (name, is_modern) in enumerate(_OVER_STDIO.items(), 100):
                self._files[name].write_text(MUTATED, encoding="utf-8")
                FileMode.log_of(self._files[name]).touch()
                seed = self.seed + number
                entries[name] = stdio_entry(self._files[name], "--seed", seed, is_modern=is_modern)
            config = self._folder / "mcp.json"
            config.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
            alone = self._folder / "alone.json"
            alone.write_text(json.dumps({"mcpServers": {NAME: witness_server()}}), encoding="utf-8")
            gateway = GatewayProcess(self._folder, config, "--call-timeout=1")
            stack.callback(gateway.stop)
            on_stdio = GatewayProcess(self._folder, alone, over_http=False)
            stack.callback(on_stdio.stop)
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=30, limits=_UNLIMITED))
            await self._attack(gateway, on_stdio, http, progress)
            for process in (gateway, on_stdio):
                self.problems += await process.problems()
        self.seconds = time.monotonic() - started

    async def _attack(
        self,
        gateway: GatewayProcess,
        on_stdio: GatewayProcess,
        http: httpx2.AsyncClient,
        progress: Callable[[str], None],
    ) -> None:
        witnesses = [HttpWitness(http, gateway.url, is_modern=is_modern, pause=0.05) for is_modern in (False, True)]
        piped = StdioWitness(on_stdio, Mutator(self.seed + 300))
        for over_http in witnesses:
            await over_http.connect()
            await over_http.until_up()
        await piped.connect()
        await piped.until_up()
        # Resets the longest stop, because loading at the start does not count.
        await gateway.report()
        async with watching(*witnesses, piped):
            named = [name for name in (*_OVER_HTTP, *_OVER_STDIO) for _ in range(_POKERS)]
            start = asyncio.create_task
            tasks = [start(self._poke(http, gateway, name), name=f"the caller of {name}") for name in named]
            tasks += [start(self._ask_oddly(gateway, one), name=f"hostile client {one}") for one in range(_CLIENTS)]
            tasks.append(start(self._ask_oddly_on_stdio(piped), name="the hostile client on stdio"))
            await self._until_done(gateway, [*witnesses, piped], progress)
            self._stopped.set()
            _, hanging = await asyncio.wait(tasks, timeout=_LONGEST)
            self.problems += [f"never answered: a request of {task.get_name()}" for task in hanging]
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            if not any(one.lost for one in (*witnesses, piped)):
                await self._recovered(gateway, http)
        every: list[Witness] = [*witnesses, piped]
        for witness in every:
            self.witness_calls += witness.calls
            self.longest_wait = max(self.longest_wait, witness.longest)
            self.problems += [f"the witness was not answered: {lost}" for lost in witness.lost[:5]]

    async def _until_done(
        self, gateway: GatewayProcess, witnesses: list[Witness], progress: Callable[[str], None]
    ) -> None:
        """Wait until enough was sent. Stop early at the first failure, while its cause is among the recent messages."""
        started = time.monotonic()
        while (done := self.done) < self.count and gateway.is_alive and not any(one.lost for one in witnesses):
            await asyncio.sleep(1)
            self.memory.append(gateway.memory())
            rate = done / (time.monotonic() - started)
            progress(f"{done:,} of {self.count:,} messages, {rate:.0f}/s, {self.memory[-1]:.0f} MB")
        if gateway.is_alive:
            self.longest_stop = float((await gateway.report()).get("longest_stop", 99.0))

    async def _poke(self, http: httpx2.AsyncClient, gateway: GatewayProcess, name: str) -> None:
        """Use one hostile server as an honest client would, so that it can misbehave."""
        client = PlainClient(http, gateway.url, is_modern=name.startswith("modern"))
        await client.connect()
        number = 0
        while not self._stopped.is_set():
            number += 1
            arguments = {"tool_name": "poke", "server_name": name, "parameters": {"value": "x"}}
            method, params = (
                ("tools/call", {"name": "call_tool", "arguments": arguments})
                if number % 4
                else _LISTS[number // 4 % len(_LISTS)]
            )
            try:
                await client.request(number, method, params)
            except (httpx2.HTTPError, AssertionError, ValueError, LookupError) as error:
                self.problems.append(f"{method} to {name} was not answered: {error!r}"[:500])
                return
            await asyncio.sleep(0.01)

    async def _ask_oddly(self, gateway: GatewayProcess, number: int) -> None:
        """A hostile client: sends changed messages, some with odd headers."""
        mutator = Mutator(self.seed + 200 + number)
        client = HostileClient(gateway.origin)
        await client.connect()
        while not self._stopped.is_set() and gateway.is_alive:
            era, message = mutator.random.choice(CLIENT_MESSAGES)
            body, kind = mutator.message(message)
            headers = mutator.random.choice(ODD_HEADERS) if mutator.random.random() < 0.1 else {}
            may_wait = "content-length" in headers or "transfer-encoding" in headers
            self.recent.append(f"{era} {headers} {body[:1_000]!r}")
            shown = ClientInput("changed", body, era, headers=headers, stays_open=may_wait)
            try:
                wrong = await client.show(shown)
            except OSError as error:
                wrong = f"no connection: {error!r}"
            if wrong and not self._stopped.is_set():
                self.problems.append(f"{wrong}: {era} {headers} {body[:1_000]!r}")
            self.sent[f"client {era} {message.get('method', 'answer')} {kind}"] += 1
            if era == LEGACY and mutator.random.random() < 0.01:
                await client.connect()

    async def _ask_oddly_on_stdio(self, witness: StdioWitness) -> None:
        while not self._stopped.is_set() and witness.gateway.is_alive:
            kind = await witness.send_changed()
            self.sent[f"client on stdio {kind}"] += 1
            await asyncio.sleep(0.02)

    async def _recovered(self, gateway: GatewayProcess, http: httpx2.AsyncClient) -> None:
        """Turn all servers good, and check that they run again."""
        for mode in self._modes.values():
            mode.name = GOOD
        for path in self._files.values():
            FileMode.show(path, GOOD)
        wanted = len(self._modes) + len(self._files) + 1
        counts: dict[str, Any] = {}
        until = time.monotonic() + _RECOVERED
        while time.monotonic() < until and gateway.is_alive:
            with contextlib.suppress(httpx2.HTTPError):
                counts = (await http.get(f"{gateway.origin}/ready")).json().get("servers", {})
                if counts.get("running") == wanted:
                    return
            await asyncio.sleep(0.2)
        self.problems.append(f"not all servers recovered: {counts} of {wanted}")

    def kinds(self) -> Counter[str]:
        """The number of messages by sender and by kind of change."""
        found: Counter[str] = Counter()
        for kind, count in self.sent.items():
            found[kind] += count
        for name, mode in self._modes.items():
            found.update(f"server {name.split('-')[0]} {deed}" for deed in mode.deeds)
        for path in self._files.values():
            lines = FileMode.log_of(path).read_text(encoding="utf-8").splitlines()
            found.update(f"server stdio {line}" for line in lines if line != "life")
        return found


_LISTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("prompts/get", {"name": "advice"}),
    ("resources/read", {"uri": "hostile://one"}),
)
