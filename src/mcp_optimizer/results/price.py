"""What tokens cost as a model's input. A value; does not know where prices come from."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_optimizer.results.metadata import CostInfo

_MILLION = 1_000_000


@dataclass(frozen=True)
class Price:
    """The price of a million input tokens of a model."""

    model: str
    currency: str
    per_million: float

    def of(self, tokens: int) -> CostInfo:
        return CostInfo(self.model, self.currency, round(tokens * self.per_million / _MILLION, 8))
