"""Globs match what a shell would match, and no pattern makes a long name slow."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.domain.globs import LONGEST_PATTERN, glob

SIGNS = st.lists(st.sampled_from(["a", "b", "A", "-", ".", "*", "?", "[ab]", "[!a]", "[a-c]", "[]]", "\n"]), max_size=8)
NAMES = st.text(alphabet="abcA-.]\n", max_size=10)


@given(SIGNS, NAMES)
def test_a_pattern_matches_what_the_standard_library_says(signs: list[str], name: str) -> None:
    pattern = "".join(signs)
    assert glob(pattern).matches(name) == fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    "pattern", ["*a*a*a*a*b", "*?a*?a*?a*?b", "*[ab]*[ab]*[ab]*c", "*" * 200 + "b", "*" + "?a" * 50 + "*b"]
)
def test_no_pattern_is_slow_on_a_hostile_name(pattern: str) -> None:
    # One that tries every place again for every star would not be done with a hundred of these in a year.
    assert not glob(pattern).matches("a" * 1_000_000)


def test_letter_case_counts() -> None:
    assert glob("Get*").matches("GetIssue")
    assert not glob("Get*").matches("getIssue")


@pytest.mark.parametrize(
    ("pattern", "said"), [("[ab", "not closed"), ("x[z-a]", "backwards"), ("a" * (LONGEST_PATTERN + 1), "at most 500")]
)
def test_a_pattern_that_cannot_be_read_says_why(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        glob(pattern)


def test_a_bracket_in_brackets_is_the_character_itself() -> None:
    assert glob("a[[]b").matches("a[b")
    assert glob("a[]]b").matches("a]b")


@pytest.mark.parametrize(("pattern", "is_everything"), [("*", True), ("***", True), ("", False), ("?*", False)])
def test_only_stars_match_everything(pattern: str, is_everything: bool) -> None:
    assert glob(pattern).is_everything is is_everything
