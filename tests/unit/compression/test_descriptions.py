"""Descriptions at each level: all, a sentence, or five words where they tell the tool apart."""

from __future__ import annotations

from mcp_optimizer.compression.descriptions import Level, ShortDescription, at_level
from mcp_optimizer.compression.five_words import five_words
from tests.unit.catalogs import mcp_tool

MOVE = mcp_tool(
    "move_card", "Move a card to another column or lane of its board. The history is kept. See also: lanes."
)
COPY = mcp_tool("copy_card", "Copy a card, with its comments and attachments, to another board. See also: boards.")
NOTHING = mcp_tool("do_it")


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
