"""Answers the first requests of the client on stdio while the gateway is still being loaded.

Started by `cli` before the heavy imports. Answers from the first line on; what `first_requests` leaves to the server
waits for it, and what comes after is answered. Stops at the first line that could change what later ones mean. Every
line is kept for the server, which hears it as if it were new (`stdio`), so that it knows what the client knows. Reads
little, and nothing from a client that does not read its replies.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.domain.own_tools import Signpost
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.first_requests import FirstRequests, Stage
from mcp_optimizer.serving.pipes import Pipes

logger = logging.getLogger(__name__)

_MOST = 64_000
"""Bytes of all messages together, and about as many that are read at a time: the rest waits in the pipe."""


@dataclass(frozen=True)
class HeardLine:
    """A line of the client, and what it was answered with: the result of a request, or a notice; neither, if it was
    not answered.
    """

    line: bytes
    id: str | int | None = None
    result: Mapping[str, Any] | None = None
    notice: Mapping[str, Any] | None = None

    @property
    def is_answered(self) -> bool:
        return self.result is not None or self.notice is not None


@dataclass(frozen=True)
class Heard:
    """What was read before the server was there: lines that are done, and bytes that nobody has looked at."""

    said: tuple[HeardLine, ...] = ()
    rest: bytes = b""


NOTHING = Heard()


class EarlyAnswers:
    """The client's first requests, answered in a task of their own until the server takes over."""

    def __init__(self, pipes: Pipes, requests: FirstRequests) -> None:
        self.pipes = pipes
        self._requests = requests
        self._said: list[HeardLine] = []
        self._rest = bytearray()
        self._stage = Stage.NEW
        self._open: set[str] = set()
        """The ids of requests that are not answered to the end."""
        self._tasks = BackgroundTasks(logger, "The first requests wait until everything is loaded")
        self._tasks.spawn(self._answer())

    @property
    def signpost(self) -> Signpost | None:
        """What the client is told to be behind the gateway."""
        return self._requests.signpost

    async def stop(self) -> Heard:
        """From now on, the server reads and writes. Nothing that was read is lost, and no reply is half written."""
        await self._tasks.close()
        return Heard(tuple(self._said), bytes(self._rest))

    async def _answer(self) -> None:
        read = 0
        # The client may have gone, which the server notices in turn.
        with suppress(OSError):
            while read < _MOST and (chunk := await self.pipes.reader.read(_MOST)):
                read += len(chunk)
                self._rest += chunk
                while (end := self._rest.find(b"\n")) >= 0:
                    if not self._take(bytes(self._rest[:end])):
                        return
                    del self._rest[: end + 1]
                    await self.pipes.writer.drain()

    def _take(self, line: bytes) -> bool:
        """Answer one line, if it is understood. Without a pause, so that it is either answered and kept, or neither."""
        request = self._requests.understood(line, self._stage)
        if request is None or str(request.id) in self._open:
            return False
        if request.result is not None:
            self._write({"id": request.id, "result": request.result})
        elif request.notice is not None:
            self._write(request.notice)
        if request.id is not None and request.result is None:
            self._open.add(str(request.id))
        self._stage = request.stage
        self._said.append(HeardLine(line, request.id, request.result, request.notice))
        return True

    def _write(self, message: Mapping[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
        self.pipes.writer.write(line.encode() + b"\n")
