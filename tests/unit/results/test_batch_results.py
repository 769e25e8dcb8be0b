"""The results of many calls, written as one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.results.batch_results import Made, OneOfMany, combined, note_on, values_of
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.selecting import Selecting


def done(value: Any, **more: Any) -> OneOfMany:
    text = value if isinstance(value, str) else json.dumps(value)
    return OneOfMany(Made.DONE, {"content": [{"type": "text", "text": text}], **more})


FAILED = OneOfMany(Made.FAILED, problem="no such card")


def said(*calls: OneOfMany) -> Any:
    [block] = combined(calls)["content"]
    return json.loads(block["text"])


def test_results_are_a_list_in_the_order_of_the_calls_with_errors_in_their_place() -> None:
    assert said(done({"a": 1}), FAILED, done([2]), done("Tag added")) == [
        *({"a": 1}, {"error": "no such card"}, [2], "Tag added"),
    ]


def test_three_objects_with_the_same_keys_are_a_table() -> None:
    rows = [{"a": 1, "b": [1]}, {"b": [], "a": 2}, {"a": None, "b": 3}]
    assert said(*map(done, rows)) == {"columns": ["a", "b"], "rows": [[1, [1]], [2, []], [None, 3]]}
    assert said(*map(done, rows[:2])) == rows[:2]
    assert said(*map(done, [*rows, {"a": 1}])) == [*rows, {"a": 1}]


def test_structured_content_is_read_where_the_text_does_not_repeat_it() -> None:
    assert said(done("3 cards", structuredContent={"cards": 3})) == [{"cards": 3}]
    assert said(done("3", structuredContent={"result": 3})) == [3]


def test_texts_of_several_lines_and_pictures_stay_as_they_are() -> None:
    picture = {"type": "image", "data": "", "mimeType": "image/png"}
    calls = [done("one\ntwo"), FAILED, OneOfMany(Made.DONE, {"content": [picture]})]
    blocks = combined(calls)["content"]
    assert [block.get("text", block) for block in blocks] == ["[0]", "one\ntwo", "[1] no such card", "[2]", picture]
    assert values_of(calls) is None


def test_only_a_reply_without_any_result_is_an_error() -> None:
    assert combined([FAILED, FAILED])["isError"]
    assert not combined([FAILED, done({})])["isError"]


def test_the_note_names_every_call_that_is_not_done() -> None:
    unsure, never = OneOfMany(Made.UNSURE, problem="no answer"), OneOfMany(Made.NOT_MADE, problem="not begun")
    assert note_on([done({})], says_why=True) == ""
    assert note_on([done({}), FAILED, FAILED, unsure, *[never] * 3], says_why=False) == (
        "[7 calls: 1 done; [1] to [2] failed; [4] to [6] not made; [3] unsure, look before you repeat. "
        "Repeat none that is done.]"
    )
    assert note_on([FAILED], says_why=True) == "[1 calls: 0 done; [0] failed. no such card]"


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("words", "[5,null,7]"),
        ("{w: words}", '[{"w":5},{"w":null},{"w":7}]'),
        ("[].words", "[5,7]"),
        ("sum([].words)", "12"),
        ("[?words > `5`].url", '["b"]'),
        ("tags[0]", '["x",null,null]'),
    ],
)
async def test_an_expression_is_for_each_result_or_else_for_the_list(expression: str, selected: str) -> None:
    values = [{"words": 5, "url": "a", "tags": ["x"]}, {"error": "no"}, {"words": 7, "url": "b", "tags": []}]
    assert (await Selecting().of_many(Projection(expression), values)).text == selected


async def test_an_expression_that_fits_nothing_names_the_keys_and_a_wrong_one_is_refused() -> None:
    values = [{"words": 5}, {"words": 7}]
    selection = await Selecting().of_many(Projection("wrods"), values)
    assert selection.is_guess
    assert selection.unmatched is not None
    assert selection.unmatched.keys == ("{words}",)
    with pytest.raises(InvalidRequest, match="cannot be applied"):
        await Selecting().of_many(Projection("length(`5`)"), values)
