"""A result that is too long is shown in a preview, because all of it cannot be read at once anyway."""

from __future__ import annotations

import json

import pytest

from mcp_optimizer.results.calls import Treatment
from mcp_optimizer.results.limits import ResultLimits, limited
from mcp_optimizer.results.result_texts import Reading
from mcp_optimizer.token_counter import TokenCounter

COUNT = TokenCounter().count_tokens
ROWS = [{"id": number, "name": f"Row {number}"} for number in range(3_000)]


def shown(count: int, limits: ResultLimits) -> tuple[int, bool]:
    """The tokens of a table of so many rows within limits, and whether it was cut."""
    text = json.dumps(ROWS[:count], separators=(",", ":"))
    done = limited(Reading({"content": [{"type": "text", "text": text}]}), limits, COUNT, "r1")
    return sum(COUNT(block["text"]) for block in done.result["content"]), done.pieces is not None


LIMITS = Treatment(max_rows=1_000, max_tokens=10_000, preview_tokens=500).limits


def test_what_fits_is_not_a_preview() -> None:
    tokens, is_cut = shown(400, LIMITS)
    assert not is_cut
    assert tokens > 500


def test_what_does_not_fit_is_shown_in_the_tokens_of_a_preview() -> None:
    tokens, is_cut = shown(1_000, LIMITS)
    assert is_cut
    assert 200 < tokens <= 500


def test_too_many_short_rows_are_cut_but_no_preview() -> None:
    tokens, is_cut = shown(120, ResultLimits(max_rows=100, max_tokens=10_000, preview_tokens=500))
    assert is_cut
    assert tokens > 500


@pytest.mark.parametrize(
    "treatment", [Treatment(max_rows=0, max_tokens=0, preview_tokens=500), Treatment(max_tokens=2_000)]
)
def test_without_a_limit_or_a_preview_nothing_changes(treatment: Treatment) -> None:
    tokens, is_cut = shown(3_000, treatment.limits)
    assert is_cut is bool(treatment.max_tokens)
    assert tokens > 1_500


def test_a_preview_is_never_longer_than_the_limit() -> None:
    tokens, _ = shown(3_000, Treatment(max_tokens=400, preview_tokens=5_000).limits)
    assert tokens <= 400
