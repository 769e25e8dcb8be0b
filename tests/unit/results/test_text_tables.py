"""A long text is a table, or none, whatever its first records leave open."""

from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.results.rows import TextTable, find_text_table, may_have_table


def _written(rows: list[list[str]]) -> list[str]:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().removesuffix("\n").split("\n")


def test_a_record_that_is_open_where_the_first_lines_end_belongs_to_the_table() -> None:
    rows = [["id", "note"], *([str(number), "one\ntwo\nthree"] for number in range(400))]
    found = find_text_table(_written(rows))
    assert found is not None
    assert (found.form, found.row_count, found.column_count) == (TextTable.CSV, 400, 2)


def test_a_first_record_of_hundreds_of_lines_does_not_hide_the_table() -> None:
    rows = [["id", "note", "more"], ["1", "line\n" * 500, "x"], ["2", "short", "y"]]
    found = find_text_table(_written(rows))
    assert found is not None
    assert (found.row_count, found.column_count) == (2, 3)


def test_a_long_text_whose_first_lines_have_commas_is_no_table() -> None:
    assert find_text_table(["a, b", *("one, two, three" for _ in range(5_000))]) is None


_LINES = st.lists(
    st.sampled_from(['{"a": 1}', "a,b", "| a | b |", "|---|---|", "1\t2", '"x', "", "  ", "word"]), max_size=6
)


@given(_LINES)
def test_a_text_that_cannot_have_a_table_has_none(lines: list[str]) -> None:
    assert find_text_table(lines) is None or may_have_table("\n".join(lines))
