"""How something ended, by the error it ended with. Pure; one mapping for history and audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_optimizer.domain.events import Outcome
from mcp_optimizer.errors import (
    CallInterrupted,
    CallTimeout,
    OptimizerError,
    RequestError,
    ServerUnavailable,
    UpstreamRefusal,
)

_OUTCOMES: tuple[tuple[type[OptimizerError], Outcome], ...] = (
    (CallTimeout, Outcome.TIMEOUT),
    (ServerUnavailable, Outcome.UNAVAILABLE),
    (CallInterrupted, Outcome.UNAVAILABLE),
    (UpstreamRefusal, Outcome.REFUSED),
    (RequestError, Outcome.BAD_REQUEST),
)


def outcome_of(error: BaseException | None, result: Mapping[str, Any] | None) -> Outcome:
    """The outcome of a call that raised the error, or returned the result."""
    if error is not None:
        return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), Outcome.FAILED)
    if result is None:
        return Outcome.FAILED
    return Outcome.TOOL_ERROR if result.get("isError") else Outcome.OK
