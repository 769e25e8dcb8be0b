"""Every text and every number of an entry has a bound, whoever it comes from."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mcp_optimizer.domain.audit import LONGEST_ARGUMENTS, LONGEST_TEXT, AuditEntry, bounded

TEXTS = [name for name, value in AuditEntry(5)._asdict().items() if isinstance(value, str)]
NUMBERS = ["at_ms", "arguments_bytes", "result_tokens", "milliseconds"]


def like(entry: AuditEntry, **fields: Any) -> AuditEntry:
    return entry._replace(**fields)


def test_texts_and_numbers_are_all_there_is_but_arguments() -> None:
    assert {*TEXTS, *NUMBERS, "arguments"} == set(AuditEntry._fields)


@pytest.mark.parametrize("name", TEXTS)
def test_each_text_is_cut_and_no_other(name: str) -> None:
    entry = AuditEntry(5, server="s", milliseconds=2.5)
    longest = like(entry, **{name: "x" * LONGEST_TEXT})
    assert bounded(longest) == longest
    assert bounded(like(entry, **{name: "x" * (LONGEST_TEXT + 1)})) == like(
        entry, **{name: "x" * (LONGEST_TEXT - 1) + "…"}
    )


def test_texts_that_are_long_only_together_are_not_cut() -> None:
    entry = like(AuditEntry(5), **dict.fromkeys(TEXTS, "x" * LONGEST_TEXT))
    assert bounded(entry) == entry


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("odd", "kept"), [(-1, 0), (2**53, 2**53), (2**53 + 1, 2**53), (math.inf, 0), (math.nan, 0), (1e300, 2**53)]
)
def test_each_number_is_one_that_can_be_stored(name: str, odd: Any, kept: int) -> None:
    entry = AuditEntry(5, server="s")
    assert bounded(like(entry, **{name: odd})) == like(entry, **{name: kept})


def test_arguments_may_be_longer_than_other_texts_and_are_cut_too() -> None:
    entry = AuditEntry(5, arguments="x" * LONGEST_ARGUMENTS)
    assert bounded(entry) == entry
    cut = bounded(entry._replace(arguments="x" * 1_000_000)).arguments
    assert cut is not None
    assert len(cut) == LONGEST_ARGUMENTS
