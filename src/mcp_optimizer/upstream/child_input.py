"""Messages to a child process, one line each, over its stdin. Bound to a peer by `stdio`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from mcp_optimizer.upstream.endings import ServerGone
from mcp_optimizer.upstream.peer import Message, to_wire


class ChildInput:
    """Writes one message at a time, and only after the child took the one before: a child that does not read takes no
    memory.
    """

    def __init__(self, stdin: asyncio.StreamWriter, hang_up: Callable[[], None]) -> None:
        """`hang_up` is told that the child no longer reads."""
        self._stdin = stdin
        self._pipe = stdin.transport
        self._hang_up = hang_up
        self._turn = asyncio.Lock()
        self._waiting = 0
        """How many messages have to wait for others, or for the child."""

    async def deliver(self, message: Message, _headers: Mapping[str, str]) -> None:
        if self._waiting or not self._is_taken():
            await self._in_turn(message)
            return
        self._stdin.write(to_wire(message) + b"\n")
        if not self._is_taken():
            await self._in_turn(None)

    def _is_taken(self) -> bool:
        """Whether everything so far is in the pipe, and the child is there, as nearly always."""
        return not self._pipe.get_write_buffer_size() and not self._pipe.is_closing()

    async def _in_turn(self, message: Message | None) -> None:
        """Wait until everything before is in the pipe, and then the message."""
        self._waiting += 1
        try:
            async with self._turn:
                await self._stdin.drain()
                if message is not None:
                    self._stdin.write(to_wire(message) + b"\n")
                    await self._stdin.drain()
        except (OSError, RuntimeError) as error:
            self._hang_up()
            raise ServerGone from error
        finally:
            self._waiting -= 1
