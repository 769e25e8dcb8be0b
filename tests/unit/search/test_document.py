"""What of a tool's definition can be searched by words."""

from __future__ import annotations

from time import perf_counter

import pytest

from mcp_optimizer.search.tool_texts import parameter_texts


def words_of(description: str) -> str:
    return " ".join(" ".join(parameter_texts({"properties": {"zone": {"description": description}}})).split())


@pytest.mark.parametrize(
    ("description", "searched"),
    [
        (
            "IANA timezone (e.g., 'Asia/Tokyo', 'Europe/Berlin'). Local by default",
            "zone IANA timezone . Local by default",
        ),
        ("IANA timezone, e.g. Asia/Tokyo; UTC if empty", "zone IANA timezone, ; UTC if empty"),
        ("A city (for example Tokyo)", "zone A city"),
        ("A city (such as Tokyo) and its country", "zone A city and its country"),
        ("The likelihood (likely values only)", "zone The likelihood (likely values only)"),
        ("Shows examples (of every kind)", "zone Shows examples (of every kind)"),
    ],
)
def test_the_example_values_of_a_parameter_are_not_what_a_tool_is_for(description: str, searched: str) -> None:
    assert words_of(description) == searched


@pytest.mark.slow
@pytest.mark.parametrize("text", ["(e.g." * 200_000, "e.g. " * 200_000, "(like " + "x" * 1_000_000])
def test_examples_without_an_end_are_read_in_time(text: str) -> None:
    begun = perf_counter()
    words_of(text)
    # Far more than it takes; without bounds in the pattern it would be minutes.
    assert perf_counter() - begun < 5
