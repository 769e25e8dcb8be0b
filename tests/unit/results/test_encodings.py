"""Fewer tokens, the same result: compact JSON is exact, and CSV and TOON are used only where they are smaller."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.results.encodings import Encoding, as_csv, as_toon, flat_table, in_encoding, minified
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.results.test_cut import CONTAINERS, STYLES

COUNTER = TokenCounter()
PEOPLE = [{"id": number, "name": f"Person {number}", "note": None} for number in range(30)]


@pytest.mark.slow
@given(CONTAINERS, STYLES)
def test_without_blanks_nothing_else_is_changed(value: Any, style: dict[str, Any]) -> None:
    text = json.dumps(value, **style)
    small = minified(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    dense = json.dumps(value, separators=(",", ":"), ensure_ascii=style.get("ensure_ascii", True))
    assert small == dense


def test_numbers_and_escapes_stay_as_they_were_written() -> None:
    text = b'{ "a" : 1.0, "b": 1E400,\n "c": [ -0 , 12345678901234567890 ], "d": "\\u00e9 \\" x" }'
    assert minified(text) == b'{"a":1.0,"b":1E400,"c":[-0,12345678901234567890],"d":"\\u00e9 \\" x"}'


@given(st.lists(st.sampled_from(['"', "\\", " ", "\n", "{", "}", ",", ":", "a", "1"])).map("".join))
def test_whatever_is_minified_with_and_without_escapes_is_minified_alike(text: str) -> None:
    """An escaped quote in a string of its own before it makes the slower way of writing the only one."""
    assert minified(b'"\\""' + text.encode()) == b'"\\""' + minified(text.encode())


def text_result(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(value)}]}


def written(value: Any, encoding: Encoding) -> str:
    return str(in_encoding(text_result(value), encoding, COUNTER.count_tokens)["content"][0]["text"])


def test_csv_says_what_stands_around_the_table_first() -> None:
    text = written(
        {"query": "SELECT", "rowCount": 30, "columnNames": ["id", "name"], "data": [[1, "a,b"]] * 30}, Encoding.CSV
    )
    head, _, table = text.partition("\n\n")
    assert json.loads(head) == {"query": "SELECT", "rowCount": 30}
    assert list(csv.reader(io.StringIO(table)))[:2] == [["id", "name"], ["1", "a,b"]]


def test_csv_tells_null_from_an_empty_text_and_a_number_from_its_spelling() -> None:
    table = flat_table([{"a": None, "b": "", "c": "007", "d": True, "e": 'say "x"'}])
    assert table is not None
    assert as_csv(table) == 'a,b,c,d,e\n,"","007",true,"say ""x"""\n'


def test_toon_names_the_columns_once() -> None:
    table = flat_table({"total": 2, "items": [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Ben, or so"}]})
    assert table is not None
    assert as_toon(table) == 'total: 2\nitems[2]{id,name}:\n  1,Ada\n  2,"Ben, or so"'


@pytest.mark.parametrize("encoding", [Encoding.CSV, Encoding.TOON])
def test_a_flat_table_is_smaller_that_way(encoding: Encoding) -> None:
    assert COUNTER.count_tokens(written(PEOPLE, encoding)) < COUNTER.count_tokens(json.dumps(PEOPLE)) * 0.7


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize(
    "value",
    [{"a": 1}, [{"a": {"nested": 1}}] * 9, [{"a": 1}, {"b": 2}], {"items": PEOPLE, "more": [1]}, [[1, 2], [3, 4]], []],
)
def test_what_is_no_flat_table_stays_json(value: Any, encoding: Encoding) -> None:
    assert json.loads(written(value, encoding)) == value


def test_where_it_is_not_smaller_it_is_not_used() -> None:
    assert json.loads(written([{"a": "1"}], Encoding.TOON)) == [{"a": "1"}]


def test_blocks_that_are_no_objects_are_left_as_they_are() -> None:
    result = {"content": ["not even an object", {"type": "text", "text": 5}]}
    assert in_encoding(result, Encoding.CSV, len) == result
