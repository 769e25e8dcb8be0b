"""Shapes are learned from the structured content of a result or from its text, of large ones from the beginning."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from mcp_optimizer.compression.shape_sources import shape_of_value
from mcp_optimizer.compression.shapes import written
from mcp_optimizer.domain.tools import shape_key
from mcp_optimizer.largejson.raw import LargeText, LargeValue
from mcp_optimizer.results.calls import Call
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.results.result_texts import NO_JSON, Reading, example
from mcp_optimizer.token_counter import TokenCounter

ROWS = {"total": 3, "rows": [{"id": number, "title": "ä" * 50, "open": True} for number in range(5_000)]}
TEXT = json.dumps(ROWS)


def result(text: Any, **fields: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **fields}


def large(text: str) -> LargeText:
    return LargeText(memoryview(json.dumps(text).encode()))


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (result("x", structuredContent={"a": 1}), {"a": 1}),
        (result('{"a": 1}'), {"a": 1}),
        (result('{"a": 1}', structuredContent={"result": '{"a": 1}'}), {"a": 1}),
        (result("hello", structuredContent={"result": "hello"}), {"result": "hello"}),
        (result("hello"), NO_JSON),
        (result("[1"), NO_JSON),
        (result(large("hello " * 100_000)), NO_JSON),
        ({"content": [{"type": "image", "data": ""}]}, NO_JSON),
        ({}, NO_JSON),
    ],
)
def test_an_example_is_the_structured_content_or_the_json_of_the_only_text(
    received: dict[str, Any], expected: Any
) -> None:
    assert example(Reading(received)) == expected


@pytest.mark.parametrize(
    "received",
    [
        result(TEXT),
        result(large(TEXT)),
        result("", structuredContent=LargeValue(memoryview(TEXT.encode()), json.loads)),
    ],
    ids=["text", "large text", "large structured content"],
)
def test_of_a_large_result_the_beginning_is_read_without_the_row_that_is_cut_off(received: dict[str, Any]) -> None:
    found = example(Reading(received))
    assert 5 < len(found["rows"]) < 1_000
    assert written(shape_of_value(found)) == "{total, rows[]: {id, title, open}}"


@pytest.mark.parametrize(
    "text", ['[{"a": "\ud800"},' + '{"a": 1},' * 9_000, "[" * 100_000, '{"a":' * 9_000, "{" * 40_000]
)
def test_a_large_text_that_is_no_proper_json_does_no_harm(text: str) -> None:
    written(shape_of_value(example(Reading(result(text)))))


async def test_a_result_that_succeeded_is_learned_before_anything_is_selected_and_an_error_is_not() -> None:
    learned: dict[str, Any] = {}
    results = Results(
        Estimator("auto", TokenCounter()), learn=lambda call, value: learned.update({call.shape_key: value()})
    )
    select = results.projection("total")

    async def answered(received: dict[str, Any]) -> dict[str, Any]:
        return received

    await results.answer(Call("s", "t", select=select, definition_hash="h"), partial(answered, result('{"total": 3}')))
    failed = result('{"code": 3}', isError=True)
    await results.answer(Call("s", "t", definition_hash="e"), partial(answered, failed))
    assert learned == {shape_key("s", "h"): {"total": 3}}


@pytest.mark.parametrize("text", ["[{'name': 'trips'}, {'name': 'drivers'}]", "name\trows\ntrips\t7\ndrivers\t9"])
async def test_a_text_that_can_be_selected_from_is_learned_as_json_is(text: str) -> None:
    learned: list[Any] = []
    results = Results(Estimator("auto", TokenCounter()), learn=lambda _call, value: learned.append(value()))

    async def answered() -> dict[str, Any]:
        return {"content": [{"type": "text", "text": text}]}

    await results.answer(Call("s", "t", definition_hash="h"), answered)
    await asyncio.sleep(0)
    assert [row["name"] for row in learned[0]] == ["trips", "drivers"]
