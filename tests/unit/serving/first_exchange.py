"""A client's first messages to a real server over real pipes, of which some are answered early."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

from mcp_optimizer import Optimizer, __version__
from mcp_optimizer.config.known_clients.habits import habits_of
from mcp_optimizer.domain.own_tools import Signpost, tools_for
from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.serving.early_answers import NOTHING, EarlyAnswers, FirstRequests, Stage
from mcp_optimizer.serving.pipes import open_pipes
from mcp_optimizer.serving.stdio import serve_pipes

PATIENCE = 30


def tools_of(client: str) -> tuple[dict[str, Any], ...]:
    return tools_for(habits_of(client), None)


FIRST = FirstRequests(tools_of, __version__, DEFAULT_LIMITS, Signpost())


def encoded(messages: Sequence[Any]) -> list[bytes]:
    """One line each; bytes are sent as they are."""
    return [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]


def answered_early(lines: Sequence[bytes], requests: FirstRequests = FIRST) -> int:
    """How many replies the first lines get before the server is there."""
    stage, replies = Stage.NEW, 0
    for line in lines:
        understood = requests.understood(line, stage)
        if understood is None:
            break
        stage = understood.stage
        replies += understood.result is not None or understood.notice is not None
    return replies


async def replies_to(
    optimizer: Optimizer, messages: Sequence[Any], early: int = 0, requests: FirstRequests = FIRST
) -> list[dict[str, Any]]:
    """Everything the client gets, if its first `early` messages arrive before the server is there."""
    lines = encoded(messages)
    (stdin, to_server), (from_server, stdout) = os.pipe(), os.pipe()
    pipes, client = await open_pipes(stdin, stdout), await open_pipes(from_server, to_server)
    heard = NOTHING
    received: list[bytes] = []
    async with asyncio.timeout(PATIENCE):
        if early:
            answers = EarlyAnswers(pipes, requests)
            client.writer.write(b"".join(line + b"\n" for line in lines[:early]))
            due = answered_early(lines[:early], requests)
            received = [await client.reader.readline() for _ in range(due)]
            heard = await answers.stop()
        client.writer.write(b"".join(line + b"\n" for line in lines[early:]))
        wanted = sum(b'"id"' in line for line in lines)
        serving = asyncio.create_task(serve_pipes(optimizer.mcp_server(), optimizer.gate, pipes, heard))
        while sum(b"list_changed" not in line for line in received) < wanted:
            received.append(await client.reader.readline())
        client.writer.close()
        await serving
        received += [line async for line in client.reader]
        client.close()
    return [json.loads(line) for line in received]


def by_id(replies: Sequence[dict[str, Any]]) -> list[str]:
    """In an order of their own: the server answers several requests at a time."""
    return sorted(json.dumps(reply, sort_keys=True) for reply in replies if "id" in reply)
