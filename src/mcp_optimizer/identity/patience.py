"""How long to leave an authorization server alone after it failed: longer each time, but not forever."""

from __future__ import annotations

import time

from mcp_optimizer.identity.web import Unanswered

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class Patience:
    """The pause after failures of one login."""

    def __init__(self) -> None:
        self._pause = _FIRST_PAUSE
        self._not_before = 0.0
        self._failure = ""

    @property
    def is_over(self) -> bool:
        """Whether it may be asked again."""
        return time.monotonic() >= self._not_before

    def check(self) -> None:
        """Raises what happened last if it is too early to ask again."""
        if not self.is_over:
            raise Unanswered(self._failure)

    def failed(self, failure: str) -> None:
        self._failure = failure
        self._not_before = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def succeeded(self) -> None:
        self._pause, self._not_before = _FIRST_PAUSE, 0.0
