"""Reports what happens to servers: to listeners, to the log of each server, and as its state.

`ServerNews` is created first and passed to the pool, and other rooms add listeners, so the pool knows none of them;
they are called at once, in the event loop. `ServerLog` keeps the last lines of a server's stderr and the events of the
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
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.hidden_text import with_hidden_shown
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, printable
from mcp_optimizer.upstream.diagnostics import Failure
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.session import Agreement
from mcp_optimizer.upstream.state import AGREED, KnownServer, UpstreamState, initial_state

logger = logging.getLogger(__name__)

OnState = Callable[[UpstreamState], None]
OnGone = Callable[[str], None]
"""Called when a server was removed, or its name now means another server: everything known about it is void."""
OnServerNotice = Callable[[str, str, Mapping[str, Any], str], None]
"""Called with a server's notification for all clients: server, method, params."""
OnOwnState = Callable[[Principal, UpstreamState], None]
"""Called when the state of a caller's own server changes."""
OnOwnNotice = Callable[[Principal, str, str, Mapping[str, Any]], None]
"""Called with a notification of a caller's own server, for that caller's clients alone."""


class ServerNews:
    """Calls listeners when a server is added, changes or is removed, and for its notifications to all clients. What
    happens to a caller's own server goes to other listeners.
    """

    def __init__(self) -> None:
        self._on_own_state: list[OnOwnState] = []
        self._on_own_notice: list[OnOwnNotice] = []
        self._on_state: list[OnState] = []
        self._on_notice: list[OnServerNotice] = []
        self._on_gone: list[OnGone] = []

    def listen(
        self, on_state: OnState | None = None, on_notice: OnServerNotice | None = None, on_gone: OnGone | None = None
    ) -> None:
        """Add listeners, which are called after the existing ones."""
        if on_state is not None:
            self._on_state.append(on_state)
        if on_gone is not None:
            self._on_gone.append(on_gone)
        if on_notice is not None:
            self._on_notice.append(on_notice)

    def listen_to_own(self, on_state: OnOwnState | None = None, on_notice: OnOwnNotice | None = None) -> None:
        """Add listeners for callers' own servers, which are called after the existing ones."""
        self._on_own_state += [on_state] if on_state is not None else []
        self._on_own_notice += [on_notice] if on_notice is not None else []

    def own_changed(self, principal: Principal, state: UpstreamState) -> None:
        for listener in self._on_own_state:
            with _failing_alone(state.name):
                listener(principal, state)

    def own_noticed(self, principal: Principal, server: str, method: str, params: Mapping[str, Any], _key: str) -> None:
        for listener in self._on_own_notice:
            with _failing_alone(server):
                listener(principal, server, method, params)

    def changed(self, state: UpstreamState) -> None:
        for listener in self._on_state:
            with _failing_alone(state.name):
                listener(state)

    def gone(self, server: str) -> None:
        for listener in self._on_gone:
            with _failing_alone(server):
                listener(server)

    def noticed(self, server: str, method: str, params: Mapping[str, Any], key: str = "") -> None:
        for listener in self._on_notice:
            with _failing_alone(server):
                listener(server, method, params, key)


@contextlib.contextmanager
def _failing_alone(server: str) -> Iterator[None]:
    """Log a listener's error, which must not affect the server or other listeners."""
    try:
        yield
    except Exception:
        logger.exception("Cannot process news from the server %s", server)


_EVENT_LENGTH = 1_000


@dataclass(frozen=True)
class LogLine:
    """One line: its time, source and text."""

    at: float
    source: str
    """`stderr`: written by the server; `gateway`: an event of the server."""
    text: str

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{when} {self.source}: {self.text}"


class ServerLog:
    """The log of one server, bounded in lines and bytes; the oldest lines are dropped."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._lines: deque[LogLine] = deque()
        self._bytes = 0

    def said(self, text: str) -> None:
        """Add a line that the server wrote to its stderr."""
        self._add("stderr", text[: self._limits.stderr_line])

    def happened(self, event: str) -> None:
        """Add an event of the server. Cut, because it may quote the server."""
        self._add("gateway", event[:_EVENT_LENGTH])

    def lines(self) -> list[LogLine]:
        """All lines, oldest first."""
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
    """Keeps and reports the state of a server. Reports complete listings, but keeps only their summaries."""

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
        """Report that the server runs. `stray`: a line on its stdout that is not MCP."""
        agreed = {name: getattr(agreement, name) for name in AGREED} | {"stray": stray}
        self._log.happened(f"runs; started in {seconds:.1f} s with {counted(listing.size, 'tool')}")
        self.change(
            status=ServerStatus.RUNNING,
            listing=listing,
            reason="",
            failure=None,
            started_in=seconds,
            is_waking=False,
            **agreed,
        )

    def rest(self, known: KnownServer | None = None, why: str = "") -> None:
        """It does not run until it is needed. `known`: what it was before, of a server that did not run yet; else `why`
        it stopped.
        """
        resting: dict[str, Any] = {"status": ServerStatus.RESTING, "reason": "", "failure": None, "is_waking": False}
        if known is not None:
            agreed = {name: getattr(known, name) for name in AGREED}
            resting |= agreed | {"listing": Listing(summary_of=known.tools)}
        else:
            self._log.happened(f"is stopped, because {why}; it starts when it is needed")
        self.change(**resting)

    def wake(self) -> None:
        """It was resting, and is started because it is needed."""
        self._log.happened("is needed, and started")
        self.change(status=ServerStatus.STARTING, is_waking=True)

    def down(self, failure: Failure, *, is_restarting: bool = False) -> None:
        """Report that the server is down. `is_restarting`: it ran, and is restarted within moments."""
        reason = self._redactor.text(printable(failure.text))
        status = ServerStatus.LOGIN_NEEDED if failure.kind is FailureKind.LOGIN else ServerStatus.FAILED
        if not self._is_over and (status, reason) != (self.state.status, self.state.reason):
            self._log.happened(f"is down: {reason}")
        is_restarting = is_restarting and status is ServerStatus.FAILED
        down = {
            "status": status,
            "reason": reason,
            "failure": failure.kind,
            "is_restarting": is_restarting,
            "is_waking": False,
        }
        self.change(**down, listing=Listing())

    def heard(self, line: str) -> None:
        """Log a line that the server wrote to its stderr."""
        # Made printable first: a colour code inside a secret would hide it from the redactor and be dropped later.
        self._log.said(self._redactor.text(printable(line)))

    def end(self) -> None:
        """Stop reporting, because another server may have the name from now on."""
        self._is_over = True
