"""Mistyped words are corrected to words of the tools and common words; names, values and other languages stay."""

from __future__ import annotations

import pytest

from mcp_optimizer.search.typing_errors import grouped, repaired
from mcp_optimizer.search.words import terms

KNOWN = frozenset(terms("search the web, delete a kubernetes pod, create an issue in a repository, list fields"))


def mended(query: str) -> str:
    return repaired(query, KNOWN.__contains__, lambda: grouped(sorted(KNOWN)))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("serach the wbe", "search the web"),
        ("delte the pod", "delete the pod"),
        ("lsit my fiels", "list my field"),
        ("remeber my birthday", "remember my birthday"),
        ("creat a new isue in the repositry", "creat a new issue in the repository"),
    ],
)
def test_a_typing_mistake_is_corrected(typed: str, meant: str) -> None:
    assert mended(typed) == meant


@pytest.mark.parametrize(
    "query",
    [
        "list the pods of frontend-7dq",
        "send it to anna.kowalczyk@exmaple.com",
        "open https://exmaple.com/serach",
        "search for 'serach'",
        "ask Kowalczyk about it",
        "wie spät ist es gerade in tokio",
        "/usr/lcoal/bin",
        "my wife likes the beach",
        "",
    ],
)
def test_names_values_quotes_and_other_languages_stay_as_they_were_typed(query: str) -> None:
    assert mended(query) == query


def test_a_request_of_thousands_of_unknown_words_is_left_alone() -> None:
    query = "qqzwx " * 5_000
    assert mended(query) == query
