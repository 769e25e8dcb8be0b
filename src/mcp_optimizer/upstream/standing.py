"""How one server stands: its state, told to whoever listens and written to its log. Used by its supervisor."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.runtime.terminal_text import counted, printable
from mcp_optimizer.upstream.failure import FailureKind
from mcp_optimizer.upstream.failure_reasons import Failure
from mcp_optimizer.upstream.handshake import Agreement
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.news import OnState
from mcp_optimizer.upstream.redaction import Redactor
from mcp_optimizer.upstream.server_log import ServerLog
from mcp_optimizer.upstream.spec import ServerSpec
from mcp_optimizer.upstream.state import AGREED, at_first


class Standing:
    """The state of a server. Listings pass through; only their summaries are kept."""

    def __init__(self, spec: ServerSpec, told: OnState, redactor: Redactor, log: ServerLog, restarts: int = 0) -> None:
        self.state = replace(at_first(spec), since=time.time(), restarts=restarts)
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
