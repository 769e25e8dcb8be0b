"""What happened at the gateway, as values: who was sent what, at what cost, how quickly and how it went.

An event never holds arguments or results, nor a name that a model made up. Imports nothing heavy: events are
made on the way of a request.
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
    LOAD = "load"
    """A client loaded its `tools/list`: our own tools and those of a profile, which it then sends with each prompt."""


class Outcome(StrEnum):
    """How it went."""

    OK = "ok"
    TOOL_ERROR = "tool error"
    """The tool answered, and says that it failed."""
    BAD_REQUEST = "bad request"
    """An unknown tool, invalid arguments: what a model can put right."""
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    """The server is not running, or ended in the middle of the call."""
    REFUSED = "refused"
    """The server answered with a protocol error."""
    FAILED = "failed"


ToolKey = tuple[str, str]
"""A tool by its server's name and its own."""


class Event(NamedTuple):
    """One thing that happened; token counts are the numbers that stand in the reply.

    A named tuple, because one is made for every call: a frozen dataclass takes ten times as long.
    """

    at: float
    """Seconds since 1970."""
    kind: EventKind
    session: str
    """Tells conversations apart; says nothing about whose they are."""
    client: str = ""
    """How the client calls itself."""
    server: str = ""
    tool: str = ""
    """The tool's own name on its server; for a load, the profile."""
    tokens: int = 0
    """What the client was sent."""
    full_tokens: int = 0
    """What it would have been sent without limits."""
    baseline_tokens: int = 0
    """All definitions of the servers that were running then."""
    milliseconds: float = 0.0
    cached: bool = False
    truncated: bool = False
    outcome: Outcome = Outcome.OK
    found: tuple[ToolKey, ...] = ()
    """The tools that a search returned, best first."""
