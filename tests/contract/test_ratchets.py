"""Long files, uses of private members of other objects, suppressions, and sleeps become fewer, never more."""

from __future__ import annotations

import pytest

from tests.contract.ratchets import LONGEST, MEASURES, allowed, measured

LIMITS = allowed()


@pytest.mark.parametrize("name", MEASURES)
def test_nothing_grew_beyond_what_is_allowed(name: str) -> None:
    limits, now = LIMITS[name], measured(name)
    grown = {key: f"{count}, allowed: {limits.get(key, 0)}" for key, count in now.items() if count > limits.get(key, 0)}
    assert grown == {}, f"fix these rather than raise ratchets.toml (a file may have {LONGEST} lines)"


@pytest.mark.parametrize("name", MEASURES)
def test_no_limit_is_higher_than_necessary(name: str) -> None:
    now = measured(name)
    slack = {
        key: f"allowed {limit}, is {now.get(key, 0)}" for key, limit in LIMITS[name].items() if limit > now.get(key, 0)
    }
    assert slack == {}, "run: python -m tests.contract.ratchets"
