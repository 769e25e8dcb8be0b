"""How many cases tests try in `make check`: the property tests, and those that are marked with `cases_in_check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Case = TypeVar("Case")

QUICK = 5
"""In `make check`, any of them."""

SOME = 40
"""In `make test`, those that name no number."""


def at_most(cases: int) -> int:
    return min(cases, QUICK) if settings.get_current_profile_name() == "quick" else cases


USUAL = 8
"""Of the cases of a unit test, unless `cases_in_check` says another number."""


def spread_out(cases: Sequence[Case], count: int) -> list[Case]:
    """So many of them that lie far apart: neighbours are often alike."""
    kept = min(count, len(cases))
    return [cases[number * len(cases) // kept] for number in range(kept)]
