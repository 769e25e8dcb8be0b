"""What several signatures of one reply have in common is written once; no parameter, type or default is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.compression.signature import say_once, signature
from tests.unit.compression.cases import tool_with

CARD = "card_id: int - Which card is meant"


def test_a_note_that_an_earlier_tool_has_word_for_word_is_left_out() -> None:
    first = f"Move a card.\n{CARD}\nlane_id: int - Where it goes"
    second = f"Copy a card.\n{CARD}\nlane_id: int - Where the copy goes"
    assert say_once([first, second]) == [first, "Copy a card.\ncard_id: int\nlane_id: int - Where the copy goes"]


def test_another_type_or_name_keeps_its_note() -> None:
    texts = [f"A.\n{CARD}", f"B.\n{CARD.replace('int', 'str')}", f"C.\n{CARD.replace('card_id:', 'card_id?:')}"]
    assert say_once(texts) == texts


def test_a_type_that_is_spelled_out_alike_is_spelled_out_once() -> None:
    block = "Place = {}\n lane: int - Which lane\n position?: int - From the top"
    assert say_once([f"Move.\nto: Place\n{block}", f"Copy.\nto: Place\n{block}"]) == [
        f"Move.\nto: Place\n{block}",
        "Copy.\nto: Place\nPlace = as above",
    ]


def test_a_type_that_somebody_else_spells_otherwise_is_spelled_out_each_time() -> None:
    texts = ["A.\nto: Place\nPlace = {x: int}", "B.\nto: Place\nPlace = {y: int}", "C.\nto: Place\nPlace = {x: int}"]
    assert say_once(texts) == texts


def test_descriptions_and_short_signatures_stay_as_they_are() -> None:
    texts = ["(a: int) Does it.", "(a: int) Does it.", "Does = it, and says so\nb: str", ""]
    assert say_once(texts) == texts
    assert say_once([]) == []


NOTED = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer"]), "description": st.sampled_from(["Which card", "Where - or when"])}
)
PROPERTIES = st.dictionaries(st.sampled_from(["card_id", "lane", "Place"]), NOTED, max_size=3)


@given(st.lists(PROPERTIES, max_size=4))
def test_nothing_but_repeated_notes_is_ever_missing(drawn: list[dict[str, dict[str, str]]]) -> None:
    texts = [signature(tool_with({"type": "object", "properties": properties})) for properties in drawn]
    for before, after in zip(texts, say_once(texts), strict=True):
        assert len(after) <= len(before)
        for line, kept in zip(before.split("\n"), after.split("\n"), strict=True):
            assert kept in (line, line.partition(" - ")[0])
            said_before = "\n".join(texts[: texts.index(before) + 1])
            assert line in said_before
