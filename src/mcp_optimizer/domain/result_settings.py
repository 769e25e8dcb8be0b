"""What the settings may say about the results of one server or tool. Values only."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

LEAST_MAX_TOKENS = 200

ResultEncoding = Literal["compact", "original", "csv", "toon"]


class ResultSettings(BaseModel):
    """How the results of one server or tool are handled; missing values fall back to the global ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_rows: int | None = Field(default=None, ge=0)
    max_tokens: int | None = None
    encoding: ResultEncoding | None = None
    cache_seconds: float | None = Field(default=None, ge=0)

    @field_validator("max_tokens")
    @classmethod
    def _enough(cls, value: int | None) -> int | None:
        return value if value is None else enough_tokens(value)


def enough_tokens(value: int) -> int:
    """A limit must leave room for the notice and for something worth reading."""
    if 0 < value < LEAST_MAX_TOKENS or value < 0:
        raise ValueError(f"must be 0 (no limit) or at least {LEAST_MAX_TOKENS}")
    return value
