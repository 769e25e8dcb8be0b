"""A person at the command line: runs `login` as a process, reads the address it prints, and answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.running import COMMAND, WARM, Finished
from tests.servers.login_world import LoginWorld

_PATIENCE = 60
ADDRESS = re.compile(r"^https?://\S+$", re.M)


def servers(folder: Path, world: LoginWorld, **entry: Any) -> list[object]:
    """The options for a server file with the protected server, `notes`, and a database in the same folder."""
    return given({"notes": {"type": "http", "url": world.server_url, **entry}}, folder)


def given(entries: dict[str, Any], folder: Path) -> list[object]:
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    return ["--config", config, "--database", folder / "catalog.db"]


class Person:
    """Waits at a command."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._said = {"out": "", "err": ""}
        self._has_news = asyncio.Event()
        streams = {"out": process.stdout, "err": process.stderr}
        self._reading = [asyncio.create_task(self._read(name, stream)) for name, stream in streams.items()]

    async def address(self) -> str:
        """Where to log in; empty if the command ended without saying."""
        async with asyncio.timeout(_PATIENCE):
            while not (found := ADDRESS.search(f"{self._said['err']}\n{self._said['out']}")):
                if all(task.done() for task in self._reading):
                    return ""
                self._has_news.clear()
                await self._has_news.wait()
        return found.group()

    async def answer(self, text: str = "") -> Finished:
        """Type this, and wait for the end."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.close()
        return await self.end()

    async def end(self, seconds: float = _PATIENCE) -> Finished:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*self._reading)
            code = await self.process.wait()
        return Finished(code, self._said["out"], self._said["err"])

    async def _read(self, name: str, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        while line := await stream.readline():
            self._said[name] += line.decode()
            self._has_news.set()
        self._has_news.set()


@asynccontextmanager
async def person_at(*arguments: object, cold: bool = False) -> AsyncIterator[Person]:
    """A command on a machine without a display. `cold`: its process is the program itself."""
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(COMMAND if cold else WARM),
        *map(str, arguments),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env={**environment, "BROWSER": "false"},
        # Tests that run in the background ignore Ctrl+C, and a child would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield Person(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def pasted(world: LoginWorld, *options: object, server: str = "notes") -> Finished:
    """A whole login by `--paste`."""
    async with person_at("login", server, "--paste", *options) as person:
        redirect = await asyncio.to_thread(world.browser, await person.address())
        return await person.answer(f"{redirect}\n")
