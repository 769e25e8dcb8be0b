"""Does the tasks one way through a real gateway, and says what each took. Called by `benchmarks.scripts`."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

from benchmarks.scripts_tasks.model import Failed, Model, Spent, texts_of
from benchmarks.scripts_tasks.task import Task
from benchmarks.scripts_tasks.world import World, made_world, server_file
from mcp_optimizer.token_counter import TokenCounter

ONE, SELECT, SCRIPT = WAYS = ("one by one", "select", "script")
_START_SECONDS = 60


@dataclass(frozen=True)
class Outcome:
    """What one task took, done one way. `wrong` says why its answer does not count."""

    discovery: Spent
    work: Spent
    wrong: str = ""

    @property
    def tokens(self) -> int:
        return self.discovery.tokens + self.work.tokens


@dataclass(frozen=True)
class Gateway:
    """What a measured gateway is started with."""

    world: Path
    """The folder in which each gateway finds a new world."""
    installed: Path | None
    database: str
    log: Path
    options: tuple[str, ...] = field(default=())


@asynccontextmanager
async def conversation(gateway: Gateway) -> AsyncIterator[tuple[Client, World]]:
    """A client of a new gateway to a new world, as soon as all its servers run."""
    with made_world(gateway.world) as world, gateway.log.open("w") as log:
        config = server_file(world, gateway.installed)
        command = ["-m", "mcp_optimizer", "serve", "--alone", "--config", str(config), "--database", gateway.database]
        started = StdioServerParameters(
            command=sys.executable,
            args=[*command, "--encoder", "none", *gateway.options],
            env={**os.environ},
        )
        async with Client(stdio_client(started, errlog=log)) as client:
            await _until_complete(client)
            yield client, world


async def _until_complete(client: Client) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while True:
            reply = " ".join(texts_of(await client.call_tool("find_tool", {"tool_description": "anything"})))
            if "not running" not in reply:
                return
            await asyncio.sleep(0.2)


async def measured(gateway: Gateway, tasks: Sequence[Task], way: str) -> dict[str, Outcome]:
    """Do all tasks one way, in one gateway, each as a conversation of its own."""
    counter, outcomes = TokenCounter(), {}
    async with conversation(gateway) as (client, world):
        for task in tasks:
            model = Model(client, counter)
            wrong = ""
            try:
                await _discover(model, task, way)
                answer = await _answer(model, world, task, way)
                if not same(answer, task.answer):
                    wrong = f"answered {answer!r}, not {task.answer!r}"
            except (Failed, LookupError, TypeError, ValueError, AttributeError) as error:
                wrong = f"{type(error).__name__}: {error}"
            outcomes[task.name] = Outcome(model.discovery, model.work, wrong)
    return outcomes


async def _discover(model: Model, task: Task, way: str) -> None:
    """Search as a model would; a tool that no reply shows in full is searched by its name."""
    detail = {"detail": "python"} if way == SCRIPT else {}
    for text in task.search:
        await model.search(text, **detail)
    for tool in not_shown(model.told, task.uses):
        await model.search(tool, **detail)
    assert not not_shown(model.told, task.uses), f"{task.name}: find_tool shows no {not_shown(model.told, task.uses)}"


def not_shown(replies: Iterable[str], tools: Iterable[str]) -> list[str]:
    """The tools of which no line gives the signature; being named among others is not enough to call one."""
    text = "\n".join(replies)
    return [tool for tool in tools if not re.search(rf"(?m)^(?:\s*(?:async )?def )?(?:\w+\.)?{tool}(?:\(| \[)", text)]


async def _answer(model: Model, world: World, task: Task, way: str) -> Any:
    if way == SCRIPT:
        return task.reads(value_of(await model.script(task.script_in(world), task.may_change)))
    if way == SELECT and task.select is not None:
        return await task.select(model, world)
    return await task.one_by_one(model, world)


def value_of(reply: str) -> Any:
    """What a script returned: JSON or a Python literal if it reads so, else the text."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(reply)
        except (ValueError, SyntaxError):
            continue
    return reply


def same(one: Any, other: Any) -> bool:
    """Equal as JSON, which knows no tuples; objects in any order."""
    return bool(json.loads(json.dumps(one)) == json.loads(json.dumps(other)))
