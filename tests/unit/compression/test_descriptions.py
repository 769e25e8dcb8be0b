"""Short descriptions: at most five of a tool's own words that tell it apart from every other tool, or a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.compression.descriptions import MOST_WORDS, Level, ShortDescription, at_level, five_words
from mcp_optimizer.search.words import terms
from tests.unit.catalogs import mcp_tool

MOVE = mcp_tool(
    "move_card", "Move a card to another column or lane of its board. The history is kept. See also: lanes."
)
COPY = mcp_tool("copy_card", "Copy a card, with its comments and attachments, to another board. See also: boards.")
NOTHING = mcp_tool("do_it")


def test_five_words_are_the_tools_own_in_the_order_in_which_they_stand() -> None:
    for tool, short in zip((MOVE, COPY), five_words([MOVE, COPY]), strict=True):
        words = short.text.lower().split()
        assert short.is_clear
        assert 0 < len(words) <= MOST_WORDS
        text = (tool.description or "").lower()
        places = [text.index(word) for word in words]
        assert places == sorted(places)


def test_what_sets_a_tool_apart_comes_before_what_all_tools_say() -> None:
    tools = [
        mcp_tool(f"tool_{noun}", f"Read the {noun} of the current workspace") for noun in ("lanes", "cards", "users")
    ]
    for short, noun in zip(five_words(tools), ("lanes", "cards", "users"), strict=True):
        assert noun in short.text.lower()
        assert short.is_clear


def test_numbers_addresses_and_words_that_say_little_come_last() -> None:
    text = (
        "Move a [card](https://example.com/cards) across boards during up to 90 days, also to another lane or column."
    )
    [short, _] = five_words([mcp_tool("relocate", text), COPY])
    assert short.text == "Move card days lane column"


def test_the_first_sentence_says_what_a_tool_does() -> None:
    tool = mcp_tool(
        "remove", "Delete a board by its name. Goes to the trash on paid plans, restored by an administrator."
    )
    [short, _] = five_words([tool, COPY])
    assert short.text.startswith("Delete board name")


def test_tools_with_the_same_first_words_are_told_apart_by_a_later_one() -> None:
    same = "Alpha beta gamma delta epsilon"
    tools = [mcp_tool("one", f"{same}. It ends red."), mcp_tool("two", f"{same}. It ends blue.")]
    # Many tools mention red and blue, so these words distinguish little, but here nothing else does.
    others = [mcp_tool(f"other_{number}", f"Paint red and blue, number{number}") for number in range(30)]
    one, two, *_ = five_words([*tools, *others])
    assert (one.is_clear, two.is_clear) == (True, True)
    assert "red" in one.text
    assert "blue" in two.text


def test_tools_that_say_the_same_are_not_clear_and_neither_is_one_that_says_nothing() -> None:
    twins = [mcp_tool("first", "Does the very same thing."), mcp_tool("second", "Does the very same thing.")]
    assert [short.is_clear for short in five_words([*twins, MOVE])] == [False, False, True]
    assert five_words([mcp_tool("x", "the of and")]) == [ShortDescription("", False)]


def test_a_tool_without_a_description_is_described_by_its_title_or_name() -> None:
    [titled, named] = five_words([mcp_tool("a", title="Rename boards"), mcp_tool("list_lanes")])
    assert titled.text == "Rename boards"
    assert named.text == "List_lanes"


def test_very_long_words_and_texts_are_passed_over() -> None:
    [short] = five_words([mcp_tool("a", "y" * 200 + " short words " + "then more " * 1_000 + "zebra")])
    assert "yyy" not in short.text
    assert "zebra" not in short.text


def test_each_level_is_shorter_than_the_one_before() -> None:
    [short, _] = five_words([MOVE, COPY])
    texts = [at_level(MOVE, level, short) for level in (Level.FULL, Level.SENTENCE, Level.WORDS)]
    assert texts[0] == MOVE.description
    assert texts[1] == "Move a card to another column or lane of its board."
    assert texts[2] == short.text


def test_words_that_are_not_clear_are_not_used() -> None:
    for short in (None, ShortDescription("Move card", False)):
        assert at_level(MOVE, Level.WORDS, short) == at_level(MOVE, Level.SENTENCE)
    assert [at_level(NOTHING, level) for level in Level] == ["", "", ""]


def test_the_same_catalog_is_always_described_in_the_same_words() -> None:
    assert five_words([MOVE, COPY, NOTHING]) == five_words([MOVE, COPY, NOTHING])
    assert five_words([]) == []


@pytest.mark.requirement("B4", "TS-3")
@given(st.lists(st.text(max_size=60), max_size=6))
def test_any_text_gives_at_most_five_words_and_no_two_clear_ones_alike(texts: list[str]) -> None:
    tools = [mcp_tool(f"tool{number}", text) for number, text in enumerate(texts)]
    shorts = five_words(tools)
    assert all(len(short.text.split()) <= MOST_WORDS for short in shorts)
    clear = [frozenset(terms(short.text)) for short in shorts if short.is_clear]
    assert len(clear) == len(set(clear))
