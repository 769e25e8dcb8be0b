"""An expression means the JSON that a server sends, not the object that its SDK wrapped around it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_optimizer.results.projection import Projection
from tests.unit.results.test_limits import gate, id_of, texts

ROWS = [{"id": number, "carrier": "ab"[number % 2], "late": number % 5 == 0} for number in range(200)]


def wrapped(value: Any) -> dict[str, Any]:
    """As the filesystem server sends a JSON file: the text, and the same text in an object."""
    text = json.dumps(value)
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"content": text}}


def enveloped(value: Any) -> dict[str, Any]:
    """As FastMCP sends a list."""
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": {"result": value}}


@pytest.mark.parametrize("made", [wrapped, enveloped])
@pytest.mark.parametrize(
    ("select", "selected"), [("length(@)", "200"), ("count_by([?late], &carrier)", '{"a":20,"b":20}')]
)
async def test_an_expression_is_applied_to_what_is_inside(made: Any, select: str, selected: str) -> None:
    async with gate(max_tokens=5_000) as opened:
        assert texts(await opened.pass_through(made(ROWS), select=Projection(select)))[0] == selected


async def test_an_expression_may_name_the_envelope() -> None:
    async with gate(max_tokens=5_000) as opened:
        result = await opened.pass_through(enveloped(ROWS), select=Projection("result[0].id"))
        assert texts(result)[0] == "0"
        result = await opened.pass_through(wrapped([1]), select=Projection("content"))
        assert texts(result)[0] == '"[1]"'


async def test_an_expression_never_says_that_a_list_is_an_object() -> None:
    async with gate(max_tokens=5_000) as opened:
        result = await opened.pass_through(wrapped(ROWS), select=Projection("keys(@)"))
        assert texts(result)[-1].startswith("[Not selected: keys() takes object, not array")


async def test_what_is_kept_is_what_the_expression_meant() -> None:
    async with gate(max_tokens=5_000) as opened:
        result = await opened.pass_through(wrapped(ROWS), select=Projection("[0].id"))
        again = await opened.results.read(id_of(result), select="[1].id")
        assert texts(again)[0] == "1"


async def test_a_wrong_guess_is_told_the_keys_of_what_is_inside() -> None:
    async with gate(max_tokens=5_000) as opened:
        result = await opened.pass_through(wrapped(ROWS), select=Projection("[].carier"))
        assert "Keys: {id, carrier, late}" in texts(result)[-1]


@pytest.mark.parametrize("structured", [{"content": "other"}, {"content": "[1]", "more": 1}, {"content": 3}, {}])
async def test_an_object_that_is_no_wrapper_is_what_it_is(structured: dict[str, Any]) -> None:
    sent = {"content": [{"type": "text", "text": "[1]"}], "structuredContent": structured}
    async with gate(max_tokens=5_000) as opened:
        result = await opened.pass_through(sent, select=Projection("keys(@)"))
        assert json.loads(texts(result)[0]) == list(structured) if structured else True


async def test_where_an_expression_cannot_be_applied_a_sample_is_shown_and_all_of_it_is_kept() -> None:
    async with gate(max_tokens=20_000) as opened:
        result = await opened.pass_through(wrapped(ROWS * 10), select=Projection("max_by(@, &nothing)"))
        *shown, cut, reason = texts(result)
        assert reason.startswith("[Not selected: max_by() takes")
        assert "of 2,000 rows shown" in cut
        assert sum(map(len, shown)) < 2_000
        read = await opened.results.read(id_of(result), select="length(@)")
        assert texts(read)[0] == "2000"
