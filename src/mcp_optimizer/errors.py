"""Every error this package raises on purpose; its type tells a caller what to do about it.

    OptimizerError                something went wrong; the message says what, and what to do
    ├── ConfigurationError        the user must change a setting or a server file (exit code 2)
    ├── NotStarted                a program used an optimizer before it was started, or after it stopped
    ├── CatalogError              the catalog database cannot be used
    ├── GatewayFailure            a running gateway could not do what a command asked; carries the exit code
    ├── SecretUnreadable          a stored secret cannot be opened with the keys at hand
    ├── UpstreamError             one MCP server behind the gateway failed; the others are not affected
    │   ├── ServerUnavailable     it is not running (dead, disabled)
    │   │   └── StillStarting     it is still starting, and the call waited for it as long as calls may
    │   ├── LoginRequired         it wants a login that only a person can make
    │   ├── ServerBusy            the maximum number of calls is waiting for it; says when to try again
    │   ├── CallTimeout           it did not respond within the call's deadline
    │   ├── CallLost              the connection broke in this call; the server may be alive
    │   ├── CallInterrupted       it died or closed the connection in the middle of a call
    │   └── UpstreamRefusal       it responded with a JSON-RPC error, which passes through unchanged
    └── RequestError              the model or client asked for something that cannot be done
        ├── UnknownTool           no such tool; carries the nearest names
        │   └── NotKnownYet       no known tool, but a server whose tools are not known yet is starting
        ├── ToolHeld              it changed since it was approved, and waits for a person's approval
        ├── AmbiguousTool         several servers have it; carries their names
        ├── InvalidArguments      the arguments do not match the tool's schema; carries the schema
        ├── CallNotWaiting        no call waits for the answers that were given
        ├── CallGone              the call ended with the gateway at which it waited
        ├── CallRefused           the caller may not call this tool; says why and what would help
        ├── TooManyCalls          the caller has used up its calls; says when to try again
        └── InvalidRequest        one of the gateway's own tools was called wrongly

A `RequestError` and an `UpstreamError` reach the model as a tool result with `isError: true`, because a model can act
on that (an `UpstreamRefusal` stays the JSON-RPC error it was). No error ever becomes an empty result;
`serving/messages.py` translates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST_QUOTE = 120
_MOST_LISTED = 20


class OptimizerError(Exception):
    """Something went wrong; the message says what, and what to do."""


class ConfigurationError(OptimizerError):
    """The user must change a setting or a server file."""


class NotStarted(OptimizerError):
    """An optimizer was used before it was started, or after it stopped."""


class CatalogError(OptimizerError):
    """The catalog database cannot be used."""


class GatewayFailure(OptimizerError):
    """A running gateway could not do what a command asked; `code` is the command's exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class SecretUnreadable(OptimizerError):
    """A stored secret cannot be opened with the keys at hand."""


class UpstreamError(OptimizerError):
    """One server behind the gateway failed."""

    def __init__(self, server: str, message: str) -> None:
        super().__init__(message)
        self.server = server


class ServerUnavailable(UpstreamError):
    """The server is not running."""


class StillStarting(ServerUnavailable):
    """The server is still starting, and the call waited in vain. Nothing was called."""

    def __init__(self, server: str, seconds: float) -> None:
        super().__init__(
            server,
            f"The server {server!r} is still starting, for {max(seconds, 1):.0f} s now. Nothing was called: make the "
            "same call again in some seconds.",
        )


class LoginRequired(UpstreamError):
    """The server wants a login that only a person can make; the message says how."""


class ServerBusy(UpstreamError):
    """The maximum number of calls is already waiting for the server."""

    def __init__(self, server: str, under_way: int, waiting: int, retry_after: float) -> None:
        super().__init__(
            server,
            f"The server {server!r} is busy: {under_way} calls in progress, {waiting} waiting. "
            f"Try again in about {retry_after:.0f} s.",
        )
        self.retry_after = retry_after


class CallTimeout(UpstreamError):
    """The server did not respond within the call's deadline."""


class CallLost(UpstreamError):
    """The connection broke in the middle of this call. The server may be alive."""


class CallInterrupted(UpstreamError):
    """The server died, or closed the connection, in the middle of a call."""


class UpstreamRefusal(UpstreamError):
    """The server responded with a JSON-RPC error."""

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
        self.reason = reason
        self.without_advice = f"Unknown tool {quoted(name)}.{detail}{hint}"
        super().__init__(f"{self.without_advice} {advice}".rstrip())
        self.nearest = tuple(nearest)


class NotKnownYet(UnknownTool):
    """No running server has this tool, but a server whose tools are not known yet is starting."""

    def __init__(self, name: str, nearest: Sequence[str], starting: Sequence[str]) -> None:
        super().__init__(name, nearest)
        hint = f" Nearest of those that are there: {', '.join(nearest)}." if nearest else ""
        self.without_advice = (
            f"The tool {quoted(name)} is not there yet. Still starting, with tools not known yet: "
            f"{listed(starting)}.{hint}"
        )
        self.args = (f"{self.without_advice} Make the same call again in some seconds.",)


class ToolHeld(RequestError):
    """The tool, or its server, is no longer what was approved. Only a person can approve it."""

    def __init__(self, server: str, tool: str, why: str, see: str, approve: str) -> None:
        super().__init__(
            f"The tool {quoted(tool)} of server {quoted(server)} cannot be called: {why}. The user can look at it with "
            f"`{see}`, and approve exactly what that shows, by the version at its end, with `{approve}`."
        )
        self.server = server
        self.tool = tool


class AmbiguousTool(RequestError):
    """Several running servers have a tool of this name."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        super().__init__(f"Tool {quoted(name)} exists on several servers. Call one of: {listed(candidates)}.")
        self.candidates = tuple(candidates)


class InvalidArguments(RequestError):
    """The arguments do not match the tool's schema, which is `abbreviated` if it is too large to show."""

    def __init__(
        self, tool: str, problems: Sequence[str], schema: Mapping[str, Any], *, abbreviated: bool = False
    ) -> None:
        super().__init__(f"Invalid parameters for {quoted(tool)}: {'; '.join(problems)}.")
        self.abbreviated = abbreviated
        self.tool = tool
        self.problems = tuple(problems)
        self.schema = schema


class CallNotWaiting(RequestError):
    """No call waits for these answers: it was answered, expired, or belongs to another client."""

    def __init__(self) -> None:
        super().__init__(
            "No call waits for these answers: the requestState is unknown, used, expired, or belongs to "
            "another client or another call. Call again without inputResponses and requestState."
        )


class CallGone(RequestError):
    """The gateway at which a call waited for these answers has ended or does not respond."""

    def __init__(self) -> None:
        super().__init__(
            "The gateway at which this call waited has ended or does not answer, and the call is lost with it. It "
            "may have taken effect: if it can change something, check that first. Then call again without "
            "inputResponses and requestState."
        )


class CallRefused(RequestError):
    """The caller may not call this tool; gives the reason, the rule's own, and what would help."""

    def __init__(self, tool: str, server: str, because: str, reason: str = "", advice: str = "") -> None:
        sentences = (f"{quoted(tool)} of {quoted(server)} may not be called: {because}", reason.strip(), advice)
        super().__init__(" ".join(_closed(sentence) for sentence in sentences if sentence))
        self.tool = tool
        self.server = server
        self.because = because
        self.reason = reason


class TooManyCalls(RequestError):
    """The caller has used up its calls for now."""

    def __init__(self, per_minute: int, retry_after: float) -> None:
        super().__init__(
            f"Too many calls: this caller may make {per_minute:,} a minute. Try again in {max(retry_after, 0.1):.1f} s."
        )
        self.per_minute = per_minute
        self.retry_after = retry_after


class InvalidRequest(RequestError):
    """One of the gateway's own tools was called wrongly."""


def quoted(value: Any) -> str:
    """A value from a request in quotes, shortened if it is long."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    shown = repr(value[: _LONGEST_QUOTE + 1] if isinstance(value, str) else value)
    return shown if len(shown) <= _LONGEST_QUOTE + 2 else f"{shown[:_LONGEST_QUOTE]}…{shown[0]}"


def _closed(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def listed(names: Sequence[str], most: int = _MOST_LISTED) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
