"""What a gateway that stops says and does, and how it ends, for tests that look at it from outside."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
from benchmarks.clients import PlainClient

from mcp_optimizer.cli.serving_process import GRACE_SECONDS
from tests.waiting import until

PAUSES = 7.0
"""Extra seconds allowed, because a busy machine may stop any process for some seconds."""
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def ended_well(code: int, taken: float, shutdown: float) -> bool:
    """Whether a gateway ended in time: by itself, or by its clock, which it may reach on a machine that pauses."""
    clock = shutdown + GRACE_SECONDS
    return (code == 0 or (code == 1 and taken >= clock)) and taken < clock + PAUSES


@asynccontextmanager
async def writing_to(pipe: Path) -> AsyncIterator[None]:
    """From when somebody reads this pipe: a server that has its call, and answers at the end of this."""
    opened: list[int] = []

    def is_read() -> bool:
        with suppress(OSError):
            opened.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(opened)

    await until(is_read)
    try:
        yield
    finally:
        os.close(opened[0])


async def echoes(http: httpx2.AsyncClient, client: PlainClient) -> bool:
    """Whether a call is answered, and not refused."""
    params = {"name": "echo", "arguments": {"value": "in time"}}
    answer = await http.send(client.made({"id": 2, "method": "tools/call", "params": params}))
    return answer.status_code == 200 and "in time" in answer.text


async def says(http: httpx2.AsyncClient, ready: str, state: str) -> bool:
    return bool((await http.get(ready)).json()["state"] == state)


async def refuses(http: httpx2.AsyncClient, address: str) -> bool:
    return (await http.post(address, json=PING)).status_code == 503


async def lists_tool(client: PlainClient, tool: str) -> bool:
    tools = (await client.request(0, "tools/list", {}))["result"]["tools"]
    return any(one["name"] == tool for one in tools)


async def gauge(http: httpx2.AsyncClient, address: str, name: str, value: int) -> bool:
    text = (await http.get(address.removesuffix("mcp") + "metrics")).text
    return f"mcp_optimizer_{name} {value:.1f}" in text.splitlines()
