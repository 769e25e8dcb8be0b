"""Reports what happens to servers: to listeners, to the log of each server, and as its state.

`ServerNews` is made first, given to the pool, and listened to by other rooms, so the pool knows none of its listeners;
they are called at once, in the event loop. `ServerLog` keeps the last lines of a server's stderr and what became of the
server, for people. `StateReporter` belongs to one supervisor and feeds both, without the server's secrets.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.hidden_text import with_hidden_shown
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, printable
from mcp_optimizer.upstream.diagnostics import Failure
from mcp_optimizer.upstream.handshake import Agreement
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.state import AGREED, UpstreamState, initial_state

logger = logging.getLogger(__name__)

OnState = Callable[[UpstreamState], None]
OnGone = Callable[[str], None]
"""A server was removed, or its name now means another one: nothing that was known of it holds any longer."""
OnServerNotice = Callable[[str, str, Mapping[str, Any]], None]
"""A server's notification for all clients: server, method, params."""


class ServerNews:
    """A server came, changed or went; or says something that is meant for everybody."""

    def __init__(self) -> None:
        self._on_state: list[OnState] = []
        self._on_notice: list[OnServerNotice] = []
        self._on_gone: list[OnGone] = []

    def listen(
        self, on_state: OnState | None = None, on_notice: OnServerNotice | None = None, on_gone: OnGone | None = None
    ) -> None:
        """Be told from now on, after those who listen already."""
        if on_state is not None:
            self._on_state.append(on_state)
        if on_gone is not None:
            self._on_gone.append(on_gone)
        if on_notice is not None:
            self._on_notice.append(on_notice)

    def changed(self, state: UpstreamState) -> None:
        for listener in self._on_state:
            with _failing_alone(state.name):
                listener(state)

    def gone(self, server: str) -> None:
        for listener in self._on_gone:
            with _failing_alone(server):
                listener(server)

    def noticed(self, server: str, method: str, params: Mapping[str, Any]) -> None:
        for listener in self._on_notice:
            with _failing_alone(server):
                listener(server, method, params)


@contextlib.contextmanager
def _failing_alone(server: str) -> Iterator[None]:
    """Whoever listens may fail; the server that is spoken of goes on, and so do the others who listen."""
    try:
        yield
    except Exception:
        logger.exception("Cannot process news from the server %s", server)


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


class StateReporter:
    """The state of a server. Listings pass through; only their summaries are kept."""

    def __init__(self, spec: ServerSpec, told: OnState, redactor: Redactor, log: ServerLog, restarts: int = 0) -> None:
        self.state = replace(initial_state(spec), since=time.time(), restarts=restarts)
        self._told = told
        self._redactor = redactor
        self._log = log
        self._is_over = False

    def change(self, **changes: Any) -> None:
        if changes.get("status", self.state.status) is not self.state.status:
            changes["since"] = time.time()
        state = replace(self.state, **changes)
        self.state = replace(state, listing=state.listing.summary())
        if not self._is_over:
            self._told(state)

    def up(self, agreement: Agreement, listing: Listing, seconds: float, stray: str = "") -> None:
        """`stray`: what it wrote to its output that is no message."""
        agreed = {name: getattr(agreement, name) for name in AGREED} | {"stray": stray}
        self._log.happened(f"runs; started in {seconds:.1f} s with {counted(listing.size, 'tool')}")
        self.change(status=ServerStatus.RUNNING, listing=listing, reason="", failure=None, started_in=seconds, **agreed)

    def down(self, failure: Failure, *, is_restarting: bool = False) -> None:
        """`is_restarting`: it ran, and is started again within moments."""
        reason = self._redactor.text(printable(failure.text))
        status = ServerStatus.LOGIN_NEEDED if failure.kind is FailureKind.LOGIN else ServerStatus.FAILED
        if not self._is_over and (status, reason) != (self.state.status, self.state.reason):
            self._log.happened(f"is down: {reason}")
        is_restarting = is_restarting and status is ServerStatus.FAILED
        down = {"status": status, "reason": reason, "failure": failure.kind, "is_restarting": is_restarting}
        self.change(**down, listing=Listing())

    def heard(self, line: str) -> None:
        """A line that the server wrote to its stderr."""
        # First made printable: a colour inside a secret must not hide it here and be dropped later.
        self._log.said(self._redactor.text(printable(line)))

    def end(self) -> None:
        """Somebody else has its name from now on: nothing more is told of this one."""
        self._is_over = True
