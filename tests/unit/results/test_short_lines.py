"""A short line of text takes a way of its own, and gets the same metadata as on the long one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.results.limits import ResultLimits, limited, only_line
from mcp_optimizer.results.result_texts import Reading
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.results.test_limits import gate, text_result

COUNTER = TokenCounter()
LIMITS = ResultLimits(max_rows=10, max_tokens=400)


@given(st.text(max_size=500) | st.sampled_from(["", "ok", "a,b", "\r", "| a |", " {", '"x"']), st.booleans())
def test_what_is_taken_for_a_line_has_no_table_and_nothing_to_cut_or_to_write_shorter(text: str, bounded: bool) -> None:
    result, limits = text_result(text), LIMITS if bounded else ResultLimits()
    if only_line(result, limits) is None:
        return
    done = limited(Reading(result), limits, COUNTER.count_tokens, "r1")
    assert (done.result, done.data, done.pieces) == (result, None, None)
    assert Reading(result).texts == [text]


@pytest.mark.parametrize(
    "result",
    [
        text_result("a\nb"),
        text_result(json.dumps([1])),
        text_result("x" * 5_000),
        text_result("line", structuredContent={"a": 1}),
        {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
        {"content": [{"type": "image", "text": "a"}]},
        {"content": [{"type": "text", "text": 5}]},
        {"content": ["line"]},
        {"content": {"type": "text", "text": "a"}},
        {"content": []},
        {},
    ],
)
def test_nothing_else_is_taken_for_a_line(result: dict[str, Any]) -> None:
    assert only_line(result, ResultLimits()) is None


def test_a_line_that_may_be_longer_than_its_limit_is_measured() -> None:
    assert only_line(text_result("é" * 300), LIMITS) is None
    assert only_line(text_result("e" * 401), LIMITS) is None
    assert only_line(text_result("e" * 400), LIMITS) == "e" * 400


async def test_a_line_says_what_it_costs_and_keeps_what_its_server_said_of_it() -> None:
    async with gate(max_tokens=1_000, max_rows=10) as opened:
        sent = text_result("Created issue 7.", isError=False, _meta={"theirs": 1})
        found = await opened.pass_through(sent)
    assert found["content"] == sent["content"]
    assert found["_meta"]["theirs"] == 1
    assert found["_meta"]["tokens"]["estimated"] == COUNTER.count_tokens("Created issue 7.")
    assert "data" not in found["_meta"]
    assert found["_meta"]["performance"]["cachedResult"] is False
