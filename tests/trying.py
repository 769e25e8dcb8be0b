"""How many cases the property tests try that take longer than others."""

from __future__ import annotations

from hypothesis import settings

QUICK = 10
"""In `make check`, any of them."""


def at_most(cases: int) -> int:
    return min(cases, QUICK) if settings.get_current_profile_name() == "quick" else cases
