"""Tries one hostile input on one transport at a gateway in this process, while a witness calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from mcp_optimizer import Optimizer
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import OptimizerError
from tests.conftest import ROOT, Entry
from tests.hostile import witness as honest_side
from tests.hostile.deeds import HTTP_MODERN, SSE, STDIO, STDIO_MODERN, Input
from tests.hostile.http_server import hostile_http
from tests.hostile.mode import GOOD, FileMode, HeldMode
from tests.hostile.witness import Witness, watching

HOSTILE = "hostile"
SETTINGS: dict[str, Any] = {
    "database": "none",
    "encoder": "none",
    "start_timeout": 2.0,
    "call_timeout": 1.0,
    "restart_pause": 0.05,
    "restart_pause_max": 0.1,
    "wait": 0.0,
    # What a server lists after its misdeed is new, and would wait for approval.
    "trust_remote": "off",
    "limits": {"message_bytes": 2_000_000, "tools": 5_000, "list_seconds": 1.0},
}
_SHOWN = 15.0
"""Seconds within which the server must have sent the input."""
_RECOVERED = 25.0
_STOPPED = 25.0
_LONGEST_STOP = 5.0
"""Seconds for which the event loop may block, on a machine that is busy with other tests."""


def stdio_entry(mode_file: Path, *options: object, is_modern: bool = False) -> Entry:
    modern = ["--modern"] if is_modern else []
    command = ["-m", "tests.hostile.stdio_server", str(mode_file), *modern, *map(str, options)]
    return {"command": sys.executable, "args": command, "cwd": str(ROOT)}


class _Told:
    """The mode of a hostile server, in this process or in its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.held = HeldMode(name)
        self.path = folder / "mode"
        FileMode.show(self.path, name)
        FileMode.log_of(self.path).touch()

    @property
    def was_shown(self) -> bool:
        return bool(self.held.deeds) or FileMode.log_of(self.path).stat().st_size > 0

    def turn_good(self) -> None:
        self.held.name = GOOD
        FileMode.show(self.path, GOOD)


class Case:
    """One run; `problems` lists everything that went wrong."""

    def __init__(self, shown: Input, wire: str, folder: Path) -> None:
        self._shown = shown
        self._wire = wire
        self._folder = folder
        self._told = _Told(folder, shown.name)
        self.problems: list[str] = []
        self.calls = 0
        self.longest_stop = 0.0

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._no_tracebacks())
            await stack.enter_async_context(self._timed_loop())
            entry = await self._entry(stack)
            entries = {HOSTILE: entry, honest_side.NAME: honest_side.witness_server()}
            config = self._folder / "mcp.json"
            config.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
            optimizer = Optimizer.from_config(config, **SETTINGS)
            optimizer.start()
            try:
                await self._attack(optimizer)
            finally:
                await self._stop(optimizer)
        if self.longest_stop > _LONGEST_STOP:
            self.problems.append(f"the event loop stood still for {self.longest_stop:.1f} s")

    async def _entry(self, stack: AsyncExitStack) -> Entry:
        if self._wire in (STDIO, STDIO_MODERN):
            return stdio_entry(self._told.path, is_modern=self._wire == STDIO_MODERN)
        url = await stack.enter_async_context(hostile_http(self._wire, self._told.held))
        return {"type": "sse" if self._wire == SSE else "http", "url": url}

    async def _attack(self, optimizer: Optimizer) -> None:
        mode = "auto" if self._wire in (STDIO_MODERN, HTTP_MODERN) else "legacy"
        async with (
            Client(optimizer.mcp_server(), mode=mode) as quiet,
            Client(optimizer.mcp_server(), mode=mode, elicitation_callback=_declines) as asked,
        ):
            witness = Witness(lambda tool, arguments: _asked(quiet, tool, arguments))
            if await witness.until_up():
                async with watching(witness):
                    await self._disturb(optimizer, asked, witness)
            self.calls = witness.calls
            self.problems += [f"the witness was not answered: {lost}" for lost in witness.lost[:3]]
            self._check_states(optimizer)

    async def _disturb(self, optimizer: Optimizer, client: Client, witness: Witness) -> None:
        poking = asyncio.create_task(self._poke(optimizer, client))
        await self._until_shown(witness)
        poking.cancel()
        await asyncio.wait({poking})
        if not poking.cancelled() and (error := poking.exception()) is not None:
            self.problems.append(f"a call to the hostile server raised {error!r}")
        self._check_states(optimizer)
        self._told.turn_good()
        await self._recovered(optimizer)

    async def _until_shown(self, witness: Witness) -> None:
        until = time.monotonic() + _SHOWN
        while not self._told.was_shown:
            if time.monotonic() > until:
                self.problems.append("the input was never shown: the gateway did not ask for it")
                return
            await asyncio.sleep(0.01)
        seen = witness.calls
        while witness.calls < seen + 10 and time.monotonic() < until:
            await asyncio.sleep(0.01)

    async def _poke(self, optimizer: Optimizer, client: Client) -> None:
        """Use the hostile server in every way, so that it can misbehave. It may only refuse, fail or stay silent."""
        while True:
            for occasion in (
                lambda: optimizer.call("poke", {}, HOSTILE),
                lambda: _asked(client, "call_tool", {"tool_name": "poke", "server_name": HOSTILE, "parameters": {}}),
                client.list_prompts,
                client.list_resources,
                client.list_resource_templates,
            ):
                # The gateway relays a server's invalid result unchanged, and this client rejects it.
                with contextlib.suppress(OptimizerError, MCPError, ValidationError):
                    await occasion()
            await asyncio.sleep(0.02)

    def _check_states(self, optimizer: Optimizer) -> None:
        states = {state.name: state for state in optimizer.servers()}
        if states[honest_side.NAME].status is not ServerStatus.RUNNING:
            self.problems.append(f"the witness server is {states[honest_side.NAME].status}")
        hostile = states[HOSTILE]
        if hostile.status not in (ServerStatus.RUNNING, ServerStatus.STARTING) and not hostile.reason:
            self.problems.append(f"the hostile server is {hostile.status}, and nobody says why")

    async def _recovered(self, optimizer: Optimizer) -> None:
        """Check that the server, now good, can be called under a name that it lists."""
        last = ""
        try:
            async with asyncio.timeout(_RECOVERED):
                while True:
                    try:
                        result = await optimizer.call("repeat", {"value": "again"}, HOSTILE)
                    except OptimizerError as error:
                        last = str(error)
                    else:
                        last = json.dumps(result)
                        if '\\"again\\"' in last:
                            return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            self.problems.append(f"it did not recover; the last answer: {last[:300]}")

    async def _stop(self, optimizer: Optimizer) -> None:
        try:
            async with asyncio.timeout(_STOPPED):
                await optimizer.stop()
        except Exception as error:  # noqa: BLE001 - any exception means that stopping failed
            self.problems.append(f"stopping failed: {error!r}")

    @contextmanager
    def _no_tracebacks(self) -> Iterator[None]:
        """Count every unhandled exception, and every exception that is logged, as a problem."""
        loop, handler = asyncio.get_running_loop(), _Tracebacks(self.problems)
        before = loop.get_exception_handler()

        def unhandled(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            self.problems.append(f"unhandled: {context.get('message')} {context.get('exception')!r}")

        loop.set_exception_handler(unhandled)
        logger = logging.getLogger("mcp_optimizer")
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            loop.set_exception_handler(before)

    @asynccontextmanager
    async def _timed_loop(self) -> AsyncIterator[None]:
        async def watch() -> None:
            while True:
                started = time.monotonic()
                await asyncio.sleep(0.01)
                self.longest_stop = max(self.longest_stop, time.monotonic() - started - 0.01)

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()


class _Tracebacks(logging.Handler):
    """Collects log records with an exception. An error without one is an ordinary message about a server."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            trace = logging.Formatter().formatException(record.exc_info)
            self._problems.append(f"logged: {record.getMessage()[:300]} {trace[-1_500:]}")


async def _asked(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    return result.model_dump(by_alias=True, exclude_none=True)


async def _declines(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="decline")
