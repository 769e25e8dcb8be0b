"""What tokens cost as the input of a model. A value; where prices come from is not its business."""

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
