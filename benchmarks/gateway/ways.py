"""A way to the echo server, direct or through a gateway, and the calls that are timed on it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from mcp import Client

_SENTENCES = (
    "The train to the coast leaves at a quarter past nine and takes a little over two hours. ",
    "Two of its carriages are closed today, so a seat should be reserved before noon. ",
    "Whoever changes at the second stop has eleven minutes, which is enough to buy bread. ",
    "From the harbour a boat goes on to the islands, in summer also late in the evening. ",
)
_TEXT = ("".join(_SENTENCES) * 3)[:1_000]
"""Prose, because counting the tokens of a word of a thousand letters takes twice as long."""

_BLOB = 1_000_000

ECHO_CALL = {"name": "echo", "arguments": {"text": _TEXT}}
ECHO_BLOB = {"name": "blob", "arguments": {"size": _BLOB}}
FOUND_CALL = {"name": "call_tool", "arguments": {"tool_name": "echo", "parameters": {"text": _TEXT}}}
FOUND_BLOB = {"name": "call_tool", "arguments": {"tool_name": "blob", "parameters": {"size": _BLOB}}}


@dataclass
class Way:
    """One way to the echo server, and what was measured on it."""

    name: str
    client: Client
    call: dict[str, Any]
    blob: dict[str, Any]
    pid: int = 0
    seconds: list[float] = field(default_factory=list)
    blob_seconds: list[float] = field(default_factory=list)
    per_second: dict[int, float] = field(default_factory=dict)
    memory: float = 0.0

    async def until_ready(self) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.one()
                except Exception:  # noqa: BLE001 - whatever fails while servers start
                    await asyncio.sleep(0.2)
                else:
                    return

    async def one(self) -> None:
        started = time.perf_counter()
        result = await self.client.call_tool(**self.call)
        self.seconds.append(time.perf_counter() - started)
        assert not result.is_error, result

    async def large(self) -> None:
        started = time.perf_counter()
        result = await self.client.call_tool(**self.blob)
        self.blob_seconds.append(time.perf_counter() - started)
        assert len(result.content[0].text) == _BLOB, result  # type: ignore[union-attr]

    async def many(self, at_once: int, calls: int) -> float:
        """Calls per second with `at_once` calls in flight."""
        left = iter(range(calls))

        async def caller() -> None:
            for _ in left:
                await self.client.call_tool(**self.call)

        started = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(at_once)))
        return calls / (time.perf_counter() - started)
