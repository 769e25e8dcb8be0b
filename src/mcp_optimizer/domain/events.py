"""Events at the gateway, as values: what a client was sent, at what cost, how fast, with what outcome.

An event never contains arguments, results, or a name that a model invented. Imports nothing heavy, because events are
made while a request waits.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class EventKind(StrEnum):
    """What a client did."""

    FIND = "find"
    CALL = "call"
    LIST = "list"
    """The plain list of tools, through `list_tools`."""
    READ = "read"
    """The rest of a result that was cut."""
    SCRIPT = "script"
    """A script ran. Its `full_tokens` are those of its calls' results, which the client was not sent."""
    LOAD = "load"
    """A client loaded its `tools/list`: our own tools and those of a profile, which it then sends with each prompt."""


class Outcome(StrEnum):
    """How it ended."""

    OK = "ok"
    TOOL_ERROR = "tool error"
    """The tool responded and reports an error."""
    BAD_REQUEST = "bad request"
    """An unknown tool or invalid arguments, which a model can correct."""
    DENIED = "denied"
    """The caller may not call the tool, has used up its calls, or the tool waits for approval."""
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    """The server is not running, or ended during the call."""
    REFUSED = "refused"
    """The server responded with a protocol error."""
    FAILED = "failed"


ToolKey = tuple[str, str]
"""A tool, by its server's name and its own."""


class Event(NamedTuple):
    """One thing that happened; token counts are those in the reply.

    A named tuple, because one is made for every call and a frozen dataclass takes ten times as long.
    """

    at: float
    """Seconds since 1970."""
    kind: EventKind
    session: str
    """Identifies the conversation, but not its owner."""
    client: str = ""
    """The client's own name for itself."""
    server: str = ""
    tool: str = ""
    """The tool's own name on its server; for a load, the profile."""
    tokens: int = 0
    """Tokens that the client was sent."""
    full_tokens: int = 0
    """Tokens that it would have been sent without limits."""
    baseline_tokens: int = 0
    """Tokens of all definitions of the servers that were running then."""
    milliseconds: float = 0.0
    cached: bool = False
    truncated: bool = False
    outcome: Outcome = Outcome.OK
    found: tuple[ToolKey, ...] = ()
    """The tools that a search returned, best first."""
    caller: str = "local"
    """The verified caller's name."""
    configuration: str = ""
    """Identifies the server file of the event's servers; empty for events from before this was recorded."""
