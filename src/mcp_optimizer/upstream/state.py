"""The state of a server, and the timeouts of its supervisor. Frozen values; no effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.limits import Limits
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.pacing import Pacer
from mcp_optimizer.upstream.parked import NameCall, ParkingLimits


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
    """How long calls in progress may go on after their server's entry was changed or removed."""
    has_one_client: bool = False
    """Everything is done for one client, as on stdio: it owns every session."""
    limits: Limits = field(default_factory=Limits)
    """How much one server may send."""
    parking: ParkingLimits = field(default_factory=ParkingLimits)
    """How long calls wait for answers of clients that cannot be asked in the middle of a call."""
    network: bool = True
    """Whether child processes get our variables for proxies and certificates."""
    name_call: NameCall | None = None
    """Names calls that wait, if other gateways have to know whose they are."""
    pacer: Pacer = field(default_factory=Pacer, compare=False, repr=False)
    """Paces how all servers of the pool are started and their listings read."""


@dataclass(frozen=True)
class UpstreamState:
    """The state of one server."""

    spec: ServerSpec
    status: ServerStatus
    listing: Listing = field(default_factory=Listing, repr=False)
    reason: str = ""
    failure: FailureKind | None = None
    """Of a server that failed: what `reason` says, for programs."""
    protocol_version: str = ""
    server_version: str = ""
    started_in: float = 0.0
    stray: str = ""
    """A line that it printed on stdout among its messages, where only messages belong."""
    restarts: int = 0
    is_restarting: bool = False
    """Of a server that failed: it ran, and is started again within moments."""
    since: float = 0.0
    """When it came to have this status, in seconds of the wall clock."""
    capabilities: Mapping[str, Any] = field(default_factory=dict, repr=False)
    instructions: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_down(self) -> bool:
        """Whether it does not run, and will not within moments."""
        return self.status.has_failed and not self.is_restarting

    @property
    def is_coming(self) -> bool:
        """Whether it is being started, or about to be."""
        return self.status is ServerStatus.STARTING or (self.status.has_failed and self.is_restarting)


AGREED = ("protocol_version", "server_version", "capabilities", "instructions")
"""What a state repeats of the agreement with its server."""


def initial_state(spec: ServerSpec) -> UpstreamState:
    """The state of a server before anything was tried."""
    if spec.problem:
        return UpstreamState(spec, ServerStatus.FAILED, reason=spec.problem, failure=spec.problem_kind)
    if spec.disabled:
        return UpstreamState(spec, ServerStatus.STOPPED, reason="disabled in its server file")
    return UpstreamState(spec, ServerStatus.STARTING)
