"""What happens to servers, on its way to whoever listens: made first, given to the pool, listened to by the rest.

So the pool knows nobody who listens, and whoever calls the pool can listen to it, too. Told at once, in the event loop.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mcp_optimizer.upstream.state import UpstreamState

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
