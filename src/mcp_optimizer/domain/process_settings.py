"""The options of the processes that serve: how many there are, and how they end."""

from __future__ import annotations

from pydantic import BaseModel, Field


class ProcessSettings(BaseModel):
    """How a gateway runs on its machine."""

    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that serve at --http, each a gateway with its own servers; they share through the "
        "database. One for each core that should be used.",
    )
    shutdown_timeout: float = Field(
        default=10.0, ge=0, description="Seconds that calls in progress have to finish when the gateway stops."
    )
    shutdown_delay: float | None = Field(
        default=None,
        ge=0,
        description="Seconds, within shutdown_timeout, for which HTTP calls are still accepted after SIGTERM while "
        "/ready already returns 503. Behind a load balancer: the time it takes to notice. Default: 3 if something "
        "asked /ready in the last 30 s, otherwise none.",
    )
