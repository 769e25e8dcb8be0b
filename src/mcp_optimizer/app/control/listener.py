"""Answers commands on a private socket, one request per connection. Started by `serve`; knows bytes, not answers.

Only the user who started the gateway can connect, but the program that connects may be broken: it may send nothing,
send too much, never read, or connect a thousand times. None of that delays a client of the gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mcp_optimizer.app.control.command_requests import REQUESTS, Request
from mcp_optimizer.app.control.wire import MOST_ASKED, FailedCommand, Hello, answered, failed, failure_of, socket_name
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.runtime.sharing.places import CAN_CONTROL, bound_socket, is_own_user, made_folder
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

Answer = Callable[[Request], Awaitable[Any]]

_SMALL = 50_000
"""Largest request, in bytes, that is parsed in the event loop and not in a thread."""
_FAULT = FailedCommand("The gateway failed at this; its log says why.")


@dataclass(frozen=True)
class ControlLimits:
    """Limits of one connection, and how many there may be."""

    connections: int = 32
    request_bytes: int = MOST_ASKED
    request_seconds: float = 10.0
    """Seconds for a command to send its request."""
    answer_seconds: float = 3_600.0
    reading_seconds: float = 30.0
    """Seconds for a command to read its answer."""


class ControlListener:
    """The socket of one gateway."""

    def __init__(
        self, answer: Answer, version: str, is_ready: Callable[[], bool], limits: ControlLimits | None = None
    ) -> None:
        self._answer = answer
        self._version = version
        self._is_ready = is_ready
        self._limits = limits or ControlLimits()
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._connected: set[asyncio.Task[None]] = set()
        self._tasks = BackgroundTasks(logger, "A command left", expected=(OSError,))

    async def start(self, identity: str, environment: Mapping[str, str]) -> Path | None:
        """Listen; returns the socket's path. If there is no place for a socket, the gateway only lacks commands."""
        folder = made_folder(environment) if CAN_CONTROL else None
        if folder is None:
            logger.info("Commands cannot reach this gateway: there is no private folder for its socket.")
            return None
        try:
            listening, self._path = bound_socket(folder, socket_name(identity, os.getpid()))
        except OSError as error:
            logger.warning("Commands cannot reach this gateway: its socket cannot be made: %s.", error.strerror)
            return None
        limit = self._limits.request_bytes + 1
        self._server = await asyncio.start_unix_server(self._accept, sock=listening, limit=limit)
        return self._path

    async def stop(self) -> None:
        """Close and remove the socket; commands that still wait get no answer."""
        # In this order: a socket file that refuses connections counts as a dead gateway's.
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
        if self._server is not None:
            self._server.close()
        for task in self._connected:
            task.cancel()
        if self._connected:
            await asyncio.wait(self._connected, timeout=1.0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connected) >= self._limits.connections:
            writer.transport.abort()
            return
        self._connected.add(task)
        try:
            if is_own_user(writer.get_extra_info("socket")):
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            # The command left or was too slow, or the gateway is stopping: no reply would be read.
            pass
        finally:
            self._connected.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._limits.request_seconds):
            writer.write(Hello(self._version, os.getpid(), self._is_ready()).line())
            try:
                line = await reader.readline()
            except ValueError:
                writer.write(failed(FailedCommand(f"The request is longer than {self._limits.request_bytes:,} bytes.")))
                await writer.drain()
                return
        if not line.endswith(b"\n"):
            return
        answering = self._tasks.spawn(self._reply(line))
        leaving = self._tasks.spawn(reader.read(1))
        try:
            async with asyncio.timeout(self._limits.answer_seconds):
                await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                # The command that waited for the answer is gone, as after Ctrl-C.
                return
            async with asyncio.timeout(self._limits.reading_seconds):
                writer.write(answering.result())
                writer.close()
                await writer.wait_closed()
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.wait({answering, leaving})

    async def _reply(self, line: bytes) -> bytes:
        try:
            request = await asyncio.to_thread(_read, line) if len(line) > _SMALL else _read(line)
            value = await self._answer(request)
        except ValidationError as error:
            # Without the values, which may be secret.
            wrong = ", ".join(".".join(map(str, part["loc"])) for part in error.errors()[:5])
            return failed(FailedCommand(f"The gateway does not understand this request ({wrong or 'not JSON'})."))
        except OptimizerError as error:
            return failed(failure_of(error))
        except Exception:
            logger.exception("A command could not be answered")
            return failed(_FAULT)
        return await asyncio.to_thread(answered, value)


def _read(line: bytes) -> Request:
    return REQUESTS.validate_json(line)
