"""Where a server stands, and how patient its supervisor is. Frozen values; no effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.limits import Limits
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.parked import ParkingLimits
from mcp_optimizer.upstream.spec import ServerSpec


@dataclass(frozen=True)
class PoolOptions:
    """How patient the pool is, in seconds."""

    start_timeout: float = 60.0
    call_timeout: float = 60.0
    first_pause: float = 1.0
    longest_pause: float = 60.0
    most_under_way: int = 100
    """Calls that one server gets at a time."""
    most_waiting: int = 1_000
    """Calls that may wait for one server; of more, each fails at once."""
    own_sessions: int = 32
    """Clients that may have a session of their own with one server."""
    has_one_client: bool = False
    """Everything is done for one client, as on stdio: it owns every session."""
    limits: Limits = field(default_factory=Limits)
    """How much one server may send."""
    parking: ParkingLimits = field(default_factory=ParkingLimits)
    """How long calls wait for answers of clients that cannot be asked in the middle of them."""


@dataclass(frozen=True)
class UpstreamState:
    """Where one server stands."""

    spec: ServerSpec
    status: ServerStatus
    listing: Listing = field(default_factory=Listing, repr=False)
    reason: str = ""
    protocol_version: str = ""
    server_version: str = ""
    started_in: float = 0.0
    restarts: int = 0
    capabilities: Mapping[str, Any] = field(default_factory=dict, repr=False)
    instructions: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        return self.spec.name
