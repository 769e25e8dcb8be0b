"""uvicorn's server, ended by whoever runs it. Knows nothing of what it serves."""

from __future__ import annotations

import contextlib

import uvicorn


class HttpServer(uvicorn.Server):
    """Signal handling of its own would end us before our children."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()

    def finish(self) -> None:
        """Take no more connections, and end when those that are open have their answers."""
        self.should_exit = True

    def break_off(self) -> None:
        """End now."""
        self.force_exit = True
