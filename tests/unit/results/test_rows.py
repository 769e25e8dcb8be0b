"""The table in a result is found in the usual places and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.results.metadata import DataInfo
from mcp_optimizer.results.result_texts import Reading, compact
from mcp_optimizer.results.rows import find_table

PEOPLE = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Ben", "age": 7}]


@pytest.mark.parametrize(
    ("value", "path", "rows", "columns"),
    [
        (PEOPLE, (), 2, 3),
        ([[1, 2], [3, 4], [5, 6]], (), 3, 2),
        ({"columns": ["id", "name"], "rows": [[1, "Ada"]]}, ("rows",), 1, 2),
        ({"query": "SELECT", "rowCount": 2, "columnNames": ["a", "b", "c"], "data": [[1, 2, 3]]}, ("data",), 1, 3),
        ({"columns": ["id"], "rows": []}, ("rows",), 0, 1),
        ({"items": PEOPLE, "total": 2}, ("items",), 2, 3),
        ({"data": {"columns": ["x"], "rows": [[1], [2]]}}, ("data", "rows"), 2, 1),
        ({"pull_requests": PEOPLE}, ("pull_requests",), 2, 3),
        ({"labels": [{"n": 1}], "issues": PEOPLE}, ("issues",), 2, 3),
        ({"items": [], "next": None}, ("items",), 0, None),
        ({"labels": ["a", "b"], "results": PEOPLE}, ("results",), 2, 3),
        ([], (), 0, None),
    ],
)
def test_a_table_in_json(value: Any, path: tuple[str, ...], rows: int, columns: int | None) -> None:
    table = find_table(value)
    assert table is not None
    assert (table.path, table.row_count, table.column_count) == (path, rows, columns)


@pytest.mark.parametrize("value", [{"a": 1}, ["a", "b"], [1, {"a": 1}], [[1], [1, 2]], "text", None, 7, {}])
def test_what_is_no_table(value: Any) -> None:
    assert find_table(value) is None


def text_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [
        ("id,name\n1,Ada\n2,Ben\n", 2, 2),
        ('id;note\n1;"a;b"\n2;c', 2, 2),
        ("a\tb\tc\n1\t2\t3\n", 1, 3),
        ("People:\n\n| id | name |\n|---|:---:|\n| 1 | Ada |\n| 2 | Ben |\n\nThat is all.", 2, 2),
        ('{"id": 1}\n{"id": 2, "x": 3}\n', 2, 2),
        (compact({"items": PEOPLE}), 2, 3),
    ],
)
def test_a_table_in_text(text: str, rows: int, columns: int) -> None:
    assert Reading(text_result(text)).data == DataInfo(rows, columns)


@pytest.mark.parametrize(
    "text",
    [
        "Well, that is a sentence.\nAnd here, too, are commas.",
        "def f(a, b):\n    return a, b\n",
        "one line, with commas",
        "1,2\n3,4\n5,6",
        "a | b\nno rule here",
        '{"broken": ',
        "",
    ],
)
def test_text_that_only_looks_like_a_table(text: str) -> None:
    assert Reading(text_result(text)).data is None


def test_structured_content_comes_before_text() -> None:
    result = {**text_result("id,name\n1,Ada\n2,Ben"), "structuredContent": {"items": [{"a": 1}]}}
    assert Reading(result).data == DataInfo(1, 1)
