"""The state of a server, and the options of the pool. Frozen values; no effects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mcp_optimizer.config.serverfile.spec import ServerSpec, Start
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ServerUnavailable
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.pacing import Pacer
from mcp_optimizer.upstream.questions import NameCall, ParkingLimits


@dataclass(frozen=True)
class PoolOptions:
    """The limits and timeouts of the pool; times are in seconds."""

    start_timeout: float = 60.0
    call_timeout: float = 60.0
    first_pause: float = 1.0
    longest_pause: float = 60.0
    most_under_way: int = 100
    """Maximum concurrent calls to one server."""
    most_waiting: int = 1_000
    """Maximum calls waiting for one server; further ones fail at once."""
    own_sessions: int = 32
    """Maximum clients with their own session on one server."""
    drain: float = 3.0
    """How long calls in progress may continue after their server's entry was changed or removed."""
    has_one_client: bool = False
    """Whether the gateway serves a single client, as on stdio, which then owns every session."""
    has_joined_clients: bool = False
    """Whether several clients on stdio join and leave it, each with a key that no other client has."""
    has_one_caller: bool = True
    """Whether everybody who calls is the same person, as on stdio, so that entries that act as each caller have one
    session like all others.
    """
    limits: Limits = DEFAULT_LIMITS
    """The limits on what one server may send."""
    parking: ParkingLimits = field(default_factory=ParkingLimits)
    """The limits for calls that wait for answers of clients that cannot be asked in the middle of a call."""
    network: bool = True
    """Whether child processes get our environment variables for proxies and certificates."""
    name_call: NameCall | None = None
    """Names calls that wait, if other gateways have to know whose they are."""
    start: Start = Start.WITH_THE_GATEWAY
    """When servers start whose entry does not say it."""
    idle_timeout: float = 600.0
    """Seconds without use after which a server stops that starts on demand, unless its entry says another time."""
    pacer: Pacer = field(default_factory=Pacer, compare=False, repr=False)
    """Paces the starts of all servers of the pool, and the reading of their listings."""


class ServerSessions(NamedTuple):
    """Sessions with one server that are open, each with a process if the server is started by a command."""

    open: int
    are_apart: bool
    """Whether each client has one that no other client has."""


@dataclass(frozen=True)
class UpstreamState:
    """The state of one server."""

    spec: ServerSpec
    status: ServerStatus
    listing: Listing = field(default_factory=Listing, repr=False)
    reason: str = ""
    failure: FailureKind | None = None
    """The kind of failure, for programs, if the server failed."""
    protocol_version: str = ""
    server_version: str = ""
    started_in: float = 0.0
    stray: str = ""
    """A line on its stdout that is not MCP, if any."""
    restarts: int = 0
    is_restarting: bool = False
    """Of a server that failed: it ran, and is started again within moments."""
    is_waking: bool = False
    """Of a server that starts: it was resting, and its lists are those that it had before."""
    since: float = 0.0
    """When it got this status, in wall-clock seconds."""
    capabilities: Mapping[str, Any] = field(default_factory=dict, repr=False)
    instructions: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_down(self) -> bool:
        """Whether it has failed, and is not restarted within moments."""
        return self.status.has_failed and not self.is_restarting

    @property
    def is_coming(self) -> bool:
        """Whether it is being started, or about to be, or will be when it is needed."""
        is_starting = self.status in (ServerStatus.STARTING, ServerStatus.RESTING)
        return is_starting or (self.status.has_failed and self.is_restarting)

    @property
    def is_resting(self) -> bool:
        """Whether it does not run because nothing needed it, until it has started again."""
        return self.status is ServerStatus.RESTING or self.is_waking

    @property
    def is_available(self) -> bool:
        """Whether what it lists can be used: it runs, or starts when it is."""
        return self.status is ServerStatus.RUNNING or self.is_resting

    def not_running(self) -> ServerUnavailable:
        """The error of a call that needs it now."""
        why = self.reason or self.status
        text = f"The server {self.name!r} is not running ({why}). Try again shortly, or see `mcp-optimizer doctor`."
        return ServerUnavailable(self.name, text)


AGREED = ("protocol_version", "server_version", "capabilities", "instructions")
"""The fields that a state copies from the agreement with its server."""


@dataclass(frozen=True)
class KnownServer:
    """What is known of a server from before, so that it need not be started to be listed."""

    tools: int
    protocol_version: str = ""
    server_version: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict, repr=False)
    instructions: str = field(default="", repr=False)


Recall = Callable[[ServerSpec], Awaitable[KnownServer | None]]
"""What is known of a server whose entry is the same as when it was listed; None if it has to be started for that."""


def initial_state(spec: ServerSpec) -> UpstreamState:
    """The state of a server before its first start."""
    if spec.problem:
        return UpstreamState(spec, ServerStatus.FAILED, reason=spec.problem, failure=spec.problem_kind)
    if spec.disabled:
        return UpstreamState(spec, ServerStatus.STOPPED, reason="disabled in its server file")
    return UpstreamState(spec, ServerStatus.STARTING)
