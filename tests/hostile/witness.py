"""The witness: a client that keeps calling an honest server through the gateway while others are hostile.

Each of its calls must get its own answer within a generous time. It knows nothing about the hostile side.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.conftest import Entry, plain_server

NAME = "witness"
LONGEST = 20.0
"""Seconds after which a call counts as lost."""

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Calls one of the gateway's own tools. Returns the result as it was sent."""


def witness_server() -> Entry:
    """The honest server, with its own deadline: that of the hostile servers is short, and the machine may be busy."""
    return {**plain_server(NAME), "timeout": LONGEST}


class Witness:
    """One witness client, and what it observed."""

    def __init__(self, ask: Ask, pause: float = 0.01) -> None:
        self.ask = ask
        self._pause = pause
        self.calls = 0
        self.longest = 0.0
        self.lost: list[str] = []

    async def until_up(self, seconds: float = 15.0) -> bool:
        """Wait until the honest server can be called. Returns whether it can."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            result = await self.ask("call_tool", _call("up"))
            if not result.get("isError"):
                return True
            await asyncio.sleep(0.05)
        self.lost.append(f"the witness server was not up after {seconds:g} s")
        return False

    async def call_once(self) -> None:
        """Make a call and a search, and check that each gets its own answer."""
        self.calls += 1
        value = f"call {self.calls} of {id(self)}"
        await self._expect("call_tool", _call(value), value)
        await self._expect("find_tool", {"tool_description": "say something back", "limit": 50}, "echo")

    async def _expect(self, tool: str, arguments: dict[str, Any], expected: str) -> None:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(LONGEST):
                result = await self.ask(tool, arguments)
        except Exception as error:  # noqa: BLE001 - any exception means that the call was lost
            self.lost.append(f"{tool} {self.calls}: {type(error).__name__}: {str(error)[:300]}")
            return
        self.longest = max(self.longest, time.perf_counter() - started)
        if result.get("isError") or expected not in json.dumps(result):
            self.lost.append(f"{tool} {self.calls}: {json.dumps(result)[:300]}")

    async def run(self) -> None:
        while True:
            await self.call_once()
            await asyncio.sleep(self._pause)


def _call(value: str) -> dict[str, Any]:
    return {"tool_name": "echo", "server_name": NAME, "parameters": {"value": value}}


@asynccontextmanager
async def watching(*witnesses: Witness) -> AsyncIterator[None]:
    """Keep the witnesses calling until the context exits."""
    tasks = [asyncio.create_task(witness.run()) for witness in witnesses]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
