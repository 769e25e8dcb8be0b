"""Events as log lines, at level `info`."""

from __future__ import annotations

import logging

from mcp_optimizer.domain.events import Event

event_logger = logging.getLogger("mcp_optimizer.events")


def log_event(event: Event) -> None:
    """One line per event; programs find its parts as fields."""
    fields = {
        "event": event.kind.value,
        "session": event.session,
        "caller": event.caller,
        "client": event.client,
        "server": event.server,
        "tool": event.tool,
        "tokens": event.tokens,
        "full_tokens": event.full_tokens,
        "milliseconds": round(event.milliseconds, 3),
        "cached": event.cached,
        "truncated": event.truncated,
        "outcome": event.outcome.value,
    }
    which = " ".join(name for name in (event.server, event.tool) if name)
    event_logger.info(
        "%s %s%s, %d tokens, %.0f ms",
        event.kind.value,
        f"{which}: " if which else "",
        event.outcome.value,
        event.tokens,
        event.milliseconds,
        extra={"fields": fields},
    )
