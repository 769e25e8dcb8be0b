"""Changes the server file for people on the dashboard, has the gateway take it in, and undoes the last change.

Called by the routes of servers and tools. What an edit does to the text is in `upstream/file_edits.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.upstream.file_edits import Edit, change_file

_NOTHING = "There is nothing to undo here."
_CHANGED = "The server file has been changed since, outside this page: undo that there, and nothing is lost."


@dataclass(frozen=True)
class LastChange:
    """One change of the file that was made here."""

    told: str
    """What was done: `disabled time`."""
    at_ms: int
    before: str = field(repr=False)
    after: str = field(repr=False)


class FileChanges:
    """One change at a time. The last one can be undone as long as the file is what it made of it."""

    def __init__(self, path: Path, take_in: Callable[[], Awaitable[object]]) -> None:
        """`take_in`: has the gateway read the file again, now."""
        self.path = path
        self.last: LastChange | None = None
        self._take_in = take_in
        self._turn = asyncio.Lock()

    async def apply(self, told: str, edit: Edit) -> bool:
        """LastChange the file; whether that changed anything. Raises ConfigurationError."""
        async with self._turn:
            change = await asyncio.to_thread(self._applied, told, edit)
            if change is None:
                return False
            self.last = change
            await self._take_in()
            return True

    async def undo(self, shown_at: str = "") -> str:
        """Restore the text before the last change; returns what was undone. Raises ConfigurationError.

        `shown_at`: the moment of the change that somebody saw and means, if they say so.
        """
        async with self._turn:
            if (last := self.last) is None:
                raise ConfigurationError(_NOTHING)
            if shown_at and shown_at != str(last.at_ms):
                raise ConfigurationError(
                    f"The last change is another one now: {last.told}. Look again before you undo it."
                )

            def restored(text: str) -> str:
                if text != last.after:
                    # Nor will it ever be.
                    self.last = None
                    raise ConfigurationError(_CHANGED)
                return last.before

            await asyncio.to_thread(change_file, self.path, restored)
            self.last = None
            await self._take_in()
            return last.told

    def _applied(self, told: str, edit: Edit) -> LastChange | None:
        made: list[LastChange] = []

        def noted(text: str) -> str:
            after = edit(text)
            made.append(LastChange(told, time.time_ns() // 1_000_000, text, after))
            return after

        return made[0] if change_file(self.path, noted) else None
