"""What is known about a server besides its responses: why its session ended, and what it sent that was unusable."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mcp_optimizer.upstream.failure import FailureKind
from mcp_optimizer.upstream.failure_reasons import Failure, is_page, refused_with

logger = logging.getLogger(__name__)


class Child(Protocol):
    """A server's process, which can say why its connection ended."""

    @property
    def hung_up(self) -> bool:
        """Whether the child ended the connection itself."""
        ...

    def failure(self) -> Failure | None: ...

    def waiting(self) -> str:
        """What it said while it was expected to answer."""
        ...

    @property
    def stray(self) -> str:
        """A line that it printed among its messages."""
        ...


class Dropped:
    """Counts dropped messages by reason, and logs each reason once. Reasons are our own words, never a server's."""

    def __init__(self, server: str = "") -> None:
        self._server = server
        self.counts: Counter[str] = Counter()

    def __call__(self, why: str) -> None:
        if why not in self.counts:
            logger.warning("Server %s: %s; dropped, and further ones will be.", self._server, why)
        self.counts[why] += 1


@dataclass
class Diagnostics:
    """Outlives the session, to explain why it ended."""

    dropped: Dropped = field(default_factory=Dropped)
    heard: Callable[[str], None] = lambda _line: None
    """Told each line that the server writes to its stderr."""
    child: Child | None = None
    http_status: int | None = None
    content_type: str = ""
    secrets: Callable[[], Mapping[str, str]] = dict
    """What the server is told about who calls, by name: never to be shown, even if it repeats it."""
    verdict: Failure | None = None
    """Why we ended the session ourselves, if we did."""

    def runs(self, child: Child) -> None:
        """The server runs as this process."""
        self.child = child

    def tells(self, secrets: Callable[[], Mapping[str, str]]) -> None:
        """The server is told these secrets."""
        self.secrets = secrets

    def answered(self, http_status: int, content_type: str = "") -> None:
        """The server last answered with this status, and a body of this type."""
        self.http_status = http_status
        self.content_type = content_type

    def judge(self, verdict: Failure) -> None:
        """We end the session ourselves, for this reason."""
        self.verdict = verdict

    def failure(self) -> Failure | None:
        """Why the session ended, if known."""
        if self.verdict is not None:
            return self.verdict
        if self.child is not None:
            return self.child.failure()
        if self.http_status is not None and (self.http_status >= 400 or is_page(self.content_type)):
            return refused_with(self.http_status, self.content_type)
        return None

    def explanation(self, problem: Failure) -> Failure:
        """Why the session ended; `problem` is what we noticed of it."""
        known = self.failure()
        if known is not None or self.child is None or problem.kind is not FailureKind.SILENT:
            return known or problem
        if self.child.stray:
            return Failure(FailureKind.NOT_MCP, f"{problem.text}, and prints on its stdout: {self.child.stray!r}")
        said = self.child.waiting()
        return Failure(problem.kind, f"{problem.text}; it last said: {said}") if said else problem

    @property
    def stray(self) -> str:
        """A line that is not MCP which the server printed among its messages."""
        return self.child.stray if self.child is not None else ""
