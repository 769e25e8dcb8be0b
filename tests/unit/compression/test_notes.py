"""Descriptions are shortened, and notes on parameters are moved out of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.compression.lossless import tidy
from mcp_optimizer.compression.notes import first_sentence, lift_notes, restates, with_note

PARAMETERS = frozenset({"path", "limit", "depth"})
NOTES = {"path": "Where to look", "limit": "How many at most"}

GOOGLE = """Search files.

Args:
    path: Where to look
    limit (int, optional): How many at most

Returns:
    The files."""
BULLETS = """Search files.

**Parameters:**
- `path`: Where to look
- **limit** (number): How many at most

Returns: The files."""
DASHES = "Search files.\n\nArguments\n* path - Where to look\n* limit — How many at most\n\nReturns:\n    The files."
NUMPY = """Search files.

Parameters
----------
path : str
    Where to look
limit : int, optional
    How many at most

Returns
-------
    The files."""
SPHINX = "Search files.\n\n:param path: Where to look\n:param int limit: How many at most\nReturns: The files."
JSDOC = "Search files.\n\n@param {string} path - Where to look\n@param limit How many at most\nReturns: The files."


TIGHT_NUMPY = NUMPY.replace("most\n\nReturns", "most\nReturns")


@pytest.mark.parametrize("description", [GOOGLE, BULLETS, DASHES, NUMPY, TIGHT_NUMPY, SPHINX, JSDOC])
def test_notes_are_lifted_from_the_usual_styles(description: str) -> None:
    found = lift_notes(description, PARAMETERS)
    assert found.notes == NOTES
    assert found.description.startswith("Search files.")
    assert "The files." in found.description
    assert "Where to look" not in found.description
    assert "Args" not in found.description


def test_a_note_goes_on_over_indented_and_after_empty_lines() -> None:
    found = lift_notes("Args:\n  path: Where\n    to look\n\n  limit: How many\n\nExamples: none", PARAMETERS)
    assert found.notes == {"path": "Where\nto look", "limit": "How many"}
    assert found.description == "Examples: none"
    tag = lift_notes(":param path: Where\n    to look\nMore.", PARAMETERS)
    assert (tag.notes, tag.description) == ({"path": "Where\nto look"}, "More.")


def test_a_section_ends_where_the_text_is_further_out() -> None:
    found = lift_notes("Search.\n\n  Args:\n    path: Where to look\n  And more.", PARAMETERS)
    assert found.notes == {"path": "Where to look"}
    assert found.description == "Search.\n\nAnd more."


def test_a_name_in_a_note_that_is_no_section_goes_on_with_it() -> None:
    found = lift_notes("Args:\n  path: Where to look\n    limit: is not meant here", PARAMETERS)
    assert found.notes == {"path": "Where to look\nlimit: is not meant here"}


@pytest.mark.parametrize(
    "section",
    [
        "Args:\n    path: Where to look\n    colour: Unknown here",
        "Args:\n    Some words first\n    path: Where to look",
        "Args:\n    path: Where to look\n    path: And again",
        "Parameters\n----------\npath : str\n    Where\nand then",
        "Args:\n",
        "Args:\n\nNothing of the kind",
        ":param colour: Unknown here",
        ":param path:",
        "Returns:\n    path: Where it was",
    ],
)
def test_a_section_with_an_unknown_line_stays_whole(section: str) -> None:
    found = lift_notes(section, PARAMETERS)
    assert not found.notes
    assert found.description == tidy(section)


def test_a_second_note_on_a_parameter_stays_where_it_is() -> None:
    found = lift_notes(":param path: Where to look\n:param path: But not there", PARAMETERS)
    assert found.notes == {"path": "Where to look"}
    assert found.description == ":param path: But not there"


def test_brackets_that_say_more_than_a_type_are_kept() -> None:
    found = lift_notes("Args:\n  path (str): Where\n  limit (int, default 10): How many", PARAMETERS)
    assert found.notes == {"path": "Where", "limit": "(int, default 10) How many"}
    numpy = lift_notes("Parameters\n---\nlimit : {1, 2}\n  How many\ndepth : int", PARAMETERS)
    assert numpy.notes == {"limit": "{1, 2}\nHow many"}


@given(st.text(alphabet="Args:\n path-limit()x @param.", max_size=120))
def test_no_word_of_a_description_is_lost(description: str) -> None:
    found = lift_notes(description, PARAMETERS)
    lifted = " ".join([found.description, *found.notes.values()])
    for word in description.replace("Args", " ").split():
        if word.isalpha() and word not in {"path", "limit", "depth", "param", "s", "g", "r", "A"}:
            assert word in lifted or word in {"args", "params", "input", "inputs"}


def test_a_lifted_note_joins_what_a_parameter_says() -> None:
    assert with_note({}, "A note") == {"description": "A note"}
    assert with_note({"description": " "}, "A note") == {"description": "A note"}
    assert with_note({"description": "A note, and more"}, "A note") == {"description": "A note, and more"}
    assert with_note({"description": "A note"}, "A note, and more") == {"description": "A note, and more"}
    assert with_note({"description": "One."}, "Two.") == {"description": "One. Two."}
    assert with_note(True, "A note") is True


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Create a card. Then more.", "Create a card."),
        ("Create a card", "Create a card"),
        ("Really? Yes.", "Really?"),
        ("Use e.g. a board, i.e. the main one. More.", "Use e.g. a board, i.e. the main one."),
        ("Calls https://example.com/a.b?c=d now. More.", "Calls https://example.com/a.b?c=d now."),
        ("Needs version 2.5.1 or later. More.", "Needs version 2.5.1 or later."),
        ("Lists cards:\n- one\n- two", "Lists cards"),
        ("Lists cards\n- one\n- two", "Lists cards"),
        ("Steps\n1. one\n2. two", "Steps"),
        ("创建卡片。然后移动它。", "创建卡片。"),
        ("カードを作る！次に動かす。", "カードを作る！"),
        ("One line\ngoes on. More.", "One line goes on."),
        ("A paragraph\n\nAnother", "A paragraph"),
        ("## Heading\n\nText.", "Heading"),
        ("By J. Smith and others. More.", "By J. Smith and others."),
        ("", ""),
        ("...", "..."),
    ],
)
def test_the_first_sentence_ends_where_a_reader_would_end_it(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_a_very_long_sentence_is_cut_at_a_word() -> None:
    cut = first_sentence("many words, " * 100)
    assert len(cut) <= 240
    assert cut.endswith(("words…", "many…"))


@given(st.text(max_size=600))
def test_a_first_sentence_is_one_short_line(text: str) -> None:
    sentence = first_sentence(text)
    assert len(sentence) <= 240
    assert "\n" not in sentence


def test_a_note_restates_a_name_only_when_it_adds_nothing() -> None:
    assert restates("The ID of the card", "card_id")
    assert restates("Unique identifier of the board", "id", "get_board")
    assert not restates("The ID of the card", "parent")
    assert not restates("Card id 5", "card_id")
    assert not restates("card " * 20, "card")
