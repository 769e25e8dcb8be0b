"""The options of the processes that serve: how many there are, and how they end."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator

from mcp_optimizer.domain.addresses import browser_address


class ProcessSettings(BaseModel):
    """How a gateway runs on its machine."""

    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that serve at --http, each a gateway with its own servers; they share through the "
        "database. One for each core that should be used.",
    )
    peer_address: str = Field(
        default="",
        description="Address at which the other gateways on the same PostgreSQL reach this one, such as "
        "http://10.0.0.7:8765. Default: the address it listens on; with --http 0.0.0.0:PORT, the address from which it "
        "reaches the database.",
    )
    shutdown_timeout: float = Field(
        default=10.0, ge=0, description="Seconds that calls in progress have to finish when the gateway stops."
    )
    shutdown_delay: float | None = Field(
        default=None,
        ge=0,
        description="Seconds, within shutdown_timeout, for which HTTP calls are still accepted after SIGTERM while "
        "/ready already returns 503. Behind a load balancer: the time it takes to notice. Default: 3 if /ready was "
        "requested in the last 30 s, otherwise none.",
    )

    @field_validator("peer_address")
    @classmethod
    def _for_peers(cls, value: str) -> str:
        return browser_address(value)
