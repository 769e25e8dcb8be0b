"""A gateway as the other gateways of its installation see it. A frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PeerGateway:
    """One process, in one life: after a restart it has another id."""

    id: str
    address: str
    """Where the others reach it, such as `http://10.0.0.7:8765`."""
    version: str
    started_at_ms: int
