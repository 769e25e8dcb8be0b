"""How much of a text fits is found without counting a text twice, and the tokens stay exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_optimizer.results.encodings import Minifier, minified
from mcp_optimizer.results.fitting import PartwiseCount, Room, parts
from mcp_optimizer.results.pages import read_document
from mcp_optimizer.results.result_texts import decoded
from mcp_optimizer.token_counter import TokenCounter
from tests.trying import at_most

ENCODINGS = ["cl100k_base", "o200k_base"]
SOURCES = sorted(Path(__file__).parents[3].glob("src/mcp_optimizer/results/*.py"))

# Everything that the patterns of the encodings treat differently, beside places where a text is divided.
PIECES = st.sampled_from(
    [
        *("a", "B", "word", "WORD", "12", "2026", "é", "日本", "ñandú", "ſ", "👍", "\u0301", "٣", "½", "_", "x" * 50),
        *("'", "'s", "'LL", "we're", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2028", "\x1c", "\x00"),
        *('"', '","', '":', "{", "},{", "/", "//\n", ".", ", ", "-", "\\n", "<|endoftext|>", "\ud800"),
    ]
)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(deadline=None, max_examples=at_most(300))
@example(pieces=["x" * 1_100, "'s", " y", '"'])
@example(pieces=["x" * 1_100, "\u0301", '"'])
@given(pieces=st.lists(PIECES, max_size=60))
def test_the_tokens_of_the_parts_add_up_to_those_of_the_text(encoding: str, pieces: list[str]) -> None:
    count = TokenCounter(encoding).count_tokens
    # Long enough to be divided at any place among the pieces.
    for filled in (1_000, 1_010, 1_020):
        text = "z " * (filled // 2) + "".join(pieces) * 4
        assert "".join(parts(text)) == text
        assert sum(map(count, parts(text))) == count(text)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_tokens_of_the_parts_of_real_files_add_up(encoding: str) -> None:
    count = TokenCounter(encoding).count_tokens
    for path in SOURCES:
        text = path.read_text("utf-8")
        for shown in (text, json.dumps({"lines": text.split("\n")}, indent=2), json.dumps([text])):
            assert PartwiseCount(count)(shown) == count(shown), path


class _Counting:
    """Counts characters that were given to the tokenizer."""

    def __init__(self) -> None:
        self.characters = 0
        self._count = TokenCounter().count_tokens

    def __call__(self, text: str) -> int:
        self.characters += len(text)
        return self._count(text)


ROWS = [{"id": number, "title": f"Issue {number} of the board", "state": "open"} for number in range(3_000)]
TEXTS = {
    "pretty JSON": json.dumps({"issues": ROWS}, indent=2),
    "lines": "\n".join(f"line {number} of the log: nothing happened" for number in range(4_000)),
    "a JSON string": json.dumps({"text": "\n".join(f"line {number}: nothing happened" for number in range(5_000))}),
    "one line": "word " * 40_000,
    "one JSON string": json.dumps({"text": "word " * 40_000}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_cut_counts_little_more_than_what_it_shows(name: str) -> None:
    counting, budget = _Counting(), 2_000
    document = read_document(TEXTS[name])
    shown = Minifier() if document.is_json else bytes
    room = Room(budget, PartwiseCount(counting), shown)
    assert room.is_exceeded(document.layout.counted)
    cut = document.cut(room)
    text = decoded(shown(cut.data))
    assert counting.characters < 2.5 * len(text)
    tokens = TokenCounter().count_tokens(text)
    assert 0.93 * budget < tokens <= budget


@pytest.mark.parametrize("most", [1, 60, 70, 75, 1_000, 2_999])
def test_a_limit_of_rows_costs_no_more_counting_and_what_fits_of_it_is_shown(most: int) -> None:
    counting, budget = _Counting(), 1_500
    document = read_document(TEXTS["pretty JSON"])
    room = Room(budget, PartwiseCount(counting), Minifier())
    assert room.is_exceeded(document.layout.counted)
    cut = document.cut(room, most)
    allowed = document.layout.kept(most)
    fits = TokenCounter().count_tokens(decoded(minified(allowed))) <= budget
    assert cut.items == most if fits else cut.items < most
    assert counting.characters < 2.5 * budget * 5


def test_a_row_that_is_much_larger_than_the_room_is_not_counted() -> None:
    counting = _Counting()
    document = read_document(json.dumps([{"text": "small"}, {"text": "word " * 200_000}]))
    assert document.cut(Room(100, PartwiseCount(counting), Minifier())).data.startswith(b'[{"text": "small"}')
    assert counting.characters < 100_000


@settings(deadline=None, max_examples=at_most(60))
@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abc"), st.text(max_size=30)), min_size=1, max_size=60),
    budget=st.integers(20, 400),
    indent=st.sampled_from([None, 2]),
)
def test_what_a_room_keeps_fits_and_the_next_row_would_not(
    rows: list[dict[str, str]], budget: int, indent: int | None
) -> None:
    text = json.dumps(rows, indent=indent, ensure_ascii=False)
    count = TokenCounter().count_tokens
    document = read_document(text)
    room = Room(budget, PartwiseCount(count), Minifier(64))
    kept = room.most(document.layout.counted)
    assert kept is not None
    tokens = [count(decoded(minified(document.layout.kept(number)))) for number in (kept, kept + 1)]
    assert tokens[0] <= budget or not kept
    if kept < document.layout.count:
        assert tokens[1] > budget or kept > 50
