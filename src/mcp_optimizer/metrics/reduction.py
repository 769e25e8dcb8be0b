"""A value before and after: the only way to state how much smaller something became. Pure; used for all savings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reduction:
    """An amount before and after, in tokens or money; negative savings if it grew."""

    before: float
    after: float
    saved: float
    percent: float

    @classmethod
    def of(cls, before: float, after: float, percent_digits: int = 2) -> Reduction:
        return cls(before, after, before - after, percent_saved(before, after, percent_digits))

    def rounded(self, digits: int) -> Reduction:
        """With rounded amounts; the percentage stays that of the exact ones."""
        return Reduction(round(self.before, digits), round(self.after, digits), round(self.saved, digits), self.percent)


def change_in_words(change: Reduction, digits: int = 0) -> str:
    """`12.5 % less`, or how much more: an increase is never shown as a saving."""
    if change.saved >= 0:
        return f"{change.percent:.1f} % less"
    return f"{-change.saved:,.{digits}f} more"


def percent_saved(before: float, after: float, digits: int = 2) -> float:
    """Zero if there was nothing to save."""
    return round((before - after) / before * 100, digits) if before else 0.0
