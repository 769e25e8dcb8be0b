"""The last that one server wrote to its stderr, and what happened to it: for people who look for what is wrong.

Filled by its supervisors, one after the other; read by the page and the command line. Whoever adds a line has removed
the server's secrets from it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from mcp_optimizer.domain.hidden_text import with_hidden_shown
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.terminal_text import in_a_line

_EVENT_LENGTH = 1_000


@dataclass(frozen=True)
class LogLine:
    """One line: when, whose words, and what."""

    at: float
    source: str
    """`stderr`: the server's own words; `gateway`: what happened to it."""
    text: str

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{when} {self.source}: {self.text}"


class ServerLog:
    """A bounded number of lines and bytes; the oldest are dropped."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._lines: deque[LogLine] = deque()
        self._bytes = 0

    def said(self, text: str) -> None:
        """The server wrote a line to its stderr."""
        self._add("stderr", text[: self._limits.stderr_line])

    def happened(self, event: str) -> None:
        """Something became of the server. Half of an event may be the server's own words."""
        self._add("gateway", event[:_EVENT_LENGTH])

    def lines(self) -> list[LogLine]:
        """The oldest first."""
        return list(self._lines)

    def _add(self, source: str, text: str) -> None:
        line = LogLine(self._clock(), source, with_hidden_shown(in_a_line(text)))
        self._lines.append(line)
        self._bytes += _size(line)
        while len(self._lines) > self._limits.log_lines or self._bytes > self._limits.log_bytes:
            self._bytes -= _size(self._lines.popleft())


def _size(line: LogLine) -> int:
    return len(line.text.encode(errors="replace"))
