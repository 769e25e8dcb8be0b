"""Gateways in front of servers with extensions, and clients that declare extensions."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.e2e.raw_clients import HttpClient
from tests.e2e.running import gateway_at
from tests.waiting import until

SERVER = Path(__file__).parents[1] / "servers" / "extended.py"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
APPS, SKILLS, TASKS = (f"io.modelcontextprotocol/{name}" for name in ("ui", "skills", "tasks"))
OPTIONS = ("--encoder", "none")


def entry(name: str, *options: str) -> dict[str, Any]:
    """An entry of a server with every extension."""
    return {"command": sys.executable, "args": [str(SERVER), "--name", name, *options]}


def declaring(*extensions: str, **capabilities: Any) -> dict[str, Any]:
    """The part of a request with which a modern client declares extensions and other capabilities."""
    return {"_meta": {CAPABILITIES: {**capabilities, "extensions": {name: {} for name in extensions}}}}


async def until_ready(address: str) -> None:
    """Wait until every server is up."""
    async with httpx2.AsyncClient() as http:

        async def is_ready() -> bool:
            return (await http.get(address.removesuffix("/mcp") + "/ready")).status_code == 200

        await until(is_ready, timeout=60)


@asynccontextmanager
async def extended_gateway(config: Path, *options: object) -> AsyncIterator[str]:
    """The address of a gateway whose servers are up."""
    async with gateway_at(config, *OPTIONS, *options) as at:
        await until_ready(at)
        yield at


async def listed(client: HttpClient, params: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    answer = await client.ask("tools/list", params)
    return {tool["name"]: tool for tool in answer["result"]["tools"]}


async def called(client: HttpClient, name: str, params: dict[str, Any] | None = None, **arguments: Any) -> Any:
    """The result of a call, or the whole answer if it is an error."""
    answer = await client.ask("tools/call", {"name": name, "arguments": arguments, **(params or {})})
    return answer.get("result") or answer


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])
