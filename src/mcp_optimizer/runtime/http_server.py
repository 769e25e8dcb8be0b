"""uvicorn's server, stopped by its caller instead of signals. Knows nothing of what it serves."""

from __future__ import annotations

import contextlib

import uvicorn


class HttpServer(uvicorn.Server):
    """A server without its own signal handling, which would end us before our child processes."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()

    def finish(self) -> None:
        """Accepts no more connections, and ends when open ones have their answers."""
        self.should_exit = True

    def break_off(self) -> None:
        """Ends now."""
        self.force_exit = True
