"""Flow measures computed from the recorded moves and blockers: cycle time, throughput, flow, age.

Called by the analytics tools; reads the state and changes nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from statistics import mean, median
from typing import Any

from mcp_optimizer_demo.kanban.records import Card, Move
from mcp_optimizer_demo.kanban.state import Kanban

SECONDS_PER_DAY = 86_400
ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Finish:
    """A finished card: when it was started and finished, and the days in between."""

    card: Card
    started_at: datetime
    finished_at: datetime
    days: float


def days_between(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() / SECONDS_PER_DAY


def started_at(kanban: Kanban, moves: Sequence[Move]) -> datetime | None:
    """When the card first entered a column that counts as cycle time."""
    counting = {column.id for column in kanban.columns if column.counts_in_cycle_time}
    return next((move.at for move in moves if move.to_column_id in counting), None)


def finished_at(kanban: Kanban, card: Card, moves: Sequence[Move]) -> datetime | None:
    """When the card last came into a done column from elsewhere, if it is still in one."""
    done = {column.id for column in kanban.columns if column.section == "done"}
    if card.column_id not in done:
        return None
    entries = [m.at for m in moves if m.to_column_id in done and m.from_column_id not in done]
    return entries[-1] if entries else None


def blocked_days(kanban: Kanban, card: Card, start: datetime, end: datetime) -> float:
    """How many days of the period the card was blocked."""
    total = 0.0
    for blocker in kanban.blockers:
        if blocker.card_id == card.id:
            overlap = days_between(max(start, blocker.started_at), min(end, blocker.ended_at or end))
            total += max(0.0, overlap)
    return total


def finishes(kanban: Kanban, cards: Sequence[Card], first: date, last: date, *, exclude_blocked: bool) -> list[Finish]:
    """The cards finished in the period with their cycle time; a card that skipped the work counts as 0 days."""
    found = []
    for card in cards:
        moves = kanban.moves_of(card.id)
        end = finished_at(kanban, card, moves)
        if end is None or not first <= end.date() <= last:
            continue
        start = min(started_at(kanban, moves) or end, end)
        days = days_between(start, end)
        if exclude_blocked:
            days -= blocked_days(kanban, card, start, end)
        found.append(Finish(card, start, end, days))
    return sorted(found, key=lambda finish: finish.finished_at)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Count, mean, median and percentiles, rounded; numbers are None when there are no values."""
    if not values:
        return {"count": 0, "average": None, "median": None, "p50": None, "p85": None, "p95": None}
    return {
        "count": len(values),
        "average": round(mean(values), 2),
        "median": round(median(values), 2),
        **{f"p{round(share * 100)}": round(percentile(values, share), 2) for share in (0.5, 0.85, 0.95)},
    }


def periods(first: date, last: date, interval: str) -> list[tuple[date, date]]:
    """The days, Monday-based weeks or months the period touches, cut to it."""
    starts = [first]
    day = first + ONE_DAY
    while day <= last:
        new_week = interval == "week" and day.weekday() == 0
        new_month = interval == "month" and day.day == 1
        if interval == "day" or new_week or new_month:
            starts.append(day)
        day += ONE_DAY
    return [(a, b - ONE_DAY) for a, b in pairwise([*starts, last + ONE_DAY])]


def cards_per_column(kanban: Kanban, cards: Sequence[Card], day: date) -> dict[int, int]:
    """How many of the cards stood in each column at the end of the day, by replaying their moves."""
    counts: dict[int, int] = {}
    for card in cards:
        places = [move.to_column_id for move in kanban.moves_of(card.id) if move.at.date() <= day]
        if places:
            counts[places[-1]] = counts.get(places[-1], 0) + 1
    return counts
