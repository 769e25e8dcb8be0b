"""Every error this package raises on purpose, so that a caller can tell what to do about it.

    OptimizerError                something went wrong; the message says what, and what to do
    ├── ConfigurationError        the user must change a setting or a server file (exit code 2)
    ├── CatalogError              the catalog database cannot be used
    ├── UpstreamError             one MCP server behind the gateway failed; the others are not affected
    │   ├── ServerUnavailable     it is not running (still starting, dead, disabled)
    │   ├── ServerBusy            as many calls as it may have are waiting for it; says when to try again
    │   ├── CallTimeout           it did not answer within the call's deadline
    │   ├── CallLost              the connection broke in this call; the server may be well
    │   ├── CallInterrupted       it died or closed the connection in the middle of a call
    │   └── UpstreamRefusal       it answered with a JSON-RPC error, which passes through unchanged
    └── RequestError              the model or client asked for something that cannot be done
        ├── UnknownTool           no such tool; carries the nearest names
        ├── AmbiguousTool         several servers have it; carries their names
        ├── InvalidArguments      the arguments do not fit the tool's schema; carries the schema
        ├── CallNotWaiting        no call waits for the answers that were given
        └── InvalidRequest        one of the gateway's own tools was called wrongly

A `RequestError` and an `UpstreamError` reach the model as a tool result with `isError: true`, because a
model can act on that (an `UpstreamRefusal` stays the JSON-RPC error it was); nothing here is ever turned into
an empty result. The translation is `for_model`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_optimizer.json_text import compact

_LONGEST_NAME = 300


class OptimizerError(Exception):
    """Something went wrong; the message says what, and what to do."""


class ConfigurationError(OptimizerError):
    """A setting or a server file must be changed by the user."""


class CatalogError(OptimizerError):
    """The catalog database cannot be used."""


class UpstreamError(OptimizerError):
    """One server behind the gateway failed."""

    def __init__(self, server: str, message: str) -> None:
        super().__init__(message)
        self.server = server


class ServerUnavailable(UpstreamError):
    """The server is not running now."""


class ServerBusy(UpstreamError):
    """As many calls as may wait for the server are waiting."""

    def __init__(self, server: str, under_way: int, waiting: int, retry_after: float) -> None:
        super().__init__(
            server,
            f"The server {server!r} is busy: {under_way} calls are under way and {waiting} are waiting. "
            f"Try again in about {retry_after:.0f} s.",
        )
        self.retry_after = retry_after


class CallTimeout(UpstreamError):
    """The server did not answer within the call's deadline."""


class CallLost(UpstreamError):
    """The connection broke in the middle of this call. Nothing is known of the server."""


class CallInterrupted(UpstreamError):
    """The server died, or closed the connection, in the middle of a call."""


class UpstreamRefusal(UpstreamError):
    """The server answered with a JSON-RPC error."""

    def __init__(self, server: str, code: int, message: str, data: Any = None) -> None:
        super().__init__(server, message)
        self.code = code
        self.data = data


class RequestError(OptimizerError):
    """The model or client asked for something that cannot be done."""


class UnknownTool(RequestError):
    """No running server has this tool."""

    def __init__(
        self, name: str, nearest: Sequence[str], reason: str = "", advice: str = "Use find_tool to search."
    ) -> None:
        hint = f" Nearest: {', '.join(nearest)}." if nearest else ""
        detail = f" {reason}" if reason else ""
        self.without_advice = f"Unknown tool {_short(name)!r}.{detail}{hint}"
        super().__init__(f"{self.without_advice} {advice}".rstrip())
        self.nearest = tuple(nearest)


class AmbiguousTool(RequestError):
    """Several running servers have a tool of this name."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        super().__init__(f"Tool {_short(name)!r} exists on several servers. Call one of: {', '.join(candidates)}.")
        self.candidates = tuple(candidates)


class InvalidArguments(RequestError):
    """The arguments do not fit the tool's schema."""

    def __init__(self, tool: str, problems: Sequence[str], schema: Mapping[str, Any]) -> None:
        super().__init__(f"Invalid parameters for {tool!r}: {'; '.join(problems)}.")
        self.tool = tool
        self.problems = tuple(problems)
        self.schema = schema


class CallNotWaiting(RequestError):
    """No call waits for the answers that were given: it was answered, took too long, or is another client's."""

    def __init__(self) -> None:
        super().__init__(
            "No call waits for these answers: its requestState is unknown, was used before, has expired, or belongs to "
            "another client or another call. Call again from the start, without inputResponses and requestState."
        )


class InvalidRequest(RequestError):
    """One of the gateway's own tools was called wrongly."""


def _short(name: str) -> str:
    """Whoever sent a name of a megabyte need not be sent it back."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def for_model(error: OptimizerError) -> str:
    """The text a model reads: what was wrong, and what it needs to get the next call right."""
    if isinstance(error, InvalidArguments):
        return f"{error} Schema: {compact(error.schema)}"
    return str(error)
