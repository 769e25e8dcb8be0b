"""What a tool's own limit cut is never silent, what is not known is not claimed, and no value breaks this."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.results.limits import around_of
from mcp_optimizer.results.result_texts import Reading
from mcp_optimizer.results.tool_limits import LIMITS, LINE_ROOM, SAYING, Extent, asked_of, extent_of
from mcp_optimizer.token_counter import TokenCounter

NAN, ENDLESS = math.nan, math.inf


def rows(count: int) -> list[dict[str, int]]:
    return [{"id": number} for number in range(count)]


def declared(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


LIMIT_OF_10 = declared(limit={"type": "integer", "default": 10})


def judged(value: Any, arguments: Any = None, schema: Any = None) -> Extent:
    """Of a result that is this JSON as text."""
    result = {"content": [{"type": "text", "text": json.dumps(value)}]}
    return extent_of(around_of(Reading(result)), asked_of(arguments or {}, schema))


@pytest.mark.parametrize(
    "said",
    [
        {"truncated": True},
        {"isTruncated": True},
        {"has_more": True},
        {"hasMore": True},
        {"hasNextPage": True},
        {"nextCursor": "eyJ"},
        {"next_cursor": "eyJ"},
        {"next_page_token": "CAE"},
        {"nextPageToken": "CAE"},
        {"next_page": 2},
        {"next": "https://api.example/items?page=2"},
        {"next": {"href": "/items?page=2"}},
        {"total_count": 11},
        {"totalCount": 11},
        {"count_total": "11"},
        {"total": 11, "page": 1},
        {"is_complete": False},
        {"isLast": False},
        {"pagination": {"has_more": True}},
        {"meta": {"total_count": 11}},
        {"page_info": {"hasNextPage": True}},
        {"response_metadata": {"next_cursor": "dXNlcjpVMDYx"}},
        {"truncated": False, "has_more": True},
    ],
    ids=json.dumps,
)
def test_a_result_that_says_so_is_cut_and_the_model_reads_that_in_it(said: dict[str, Any]) -> None:
    extent = judged({"items": rows(10), **said}, {}, LIMIT_OF_10)
    assert (extent.is_cut, extent.line) == (True, "")


@pytest.mark.parametrize(
    "said",
    [
        {"truncated": False},
        {"has_more": False},
        {"nextCursor": None},
        {"nextCursor": ""},
        {"isLast": True},
        {"pagination": {"next": None}},
        {"total_count": 10, "has_more": False},
    ],
    ids=json.dumps,
)
def test_a_result_that_says_there_is_no_more_is_complete_even_at_its_limit(said: dict[str, Any]) -> None:
    assert judged({"items": rows(10), **said}, {}, LIMIT_OF_10).is_cut is False


def test_as_many_rows_as_the_default_may_not_be_all() -> None:
    extent = judged(rows(10), {}, LIMIT_OF_10)
    assert (extent.is_cut, extent.limit) == (None, 10)
    assert extent.line == "[10 rows, the tool's limit (limit): there may be more.]"


def test_as_many_rows_as_asked_for_may_not_be_all() -> None:
    assert judged(rows(25), {"limit": 25}, LIMIT_OF_10).limit == 25
    assert judged(rows(1), {"maxResults": 1}).line == "[1 row, the tool's limit (maxResults): there may be more.]"


def test_fewer_rows_than_the_limit_are_all() -> None:
    assert judged(rows(9), {}, LIMIT_OF_10).is_cut is False
    assert judged(rows(10), {"limit": 11}, LIMIT_OF_10).is_cut is False


def test_more_rows_than_the_limit_show_that_it_limits_something_else() -> None:
    assert judged(rows(12), {}, LIMIT_OF_10) == Extent()


def test_nothing_is_claimed_where_the_limit_is_not_known() -> None:
    assert judged(rows(10), {}, declared(limit={"type": "integer"})).is_cut is None
    assert judged(rows(10), {"limit": 0}, LIMIT_OF_10).is_cut is None
    assert judged(rows(10), {}, declared(page={"type": "integer"})).is_cut is None
    assert judged({"items": rows(10), "cursor": "abc"}).is_cut is None


def test_without_any_limit_a_result_is_complete() -> None:
    assert judged(rows(10)).is_cut is False
    assert judged(rows(10), {"name": 10}, declared(name={"type": "integer", "default": 10})).is_cut is False


def test_a_total_that_may_be_a_sum_is_not_taken_for_a_number_of_rows() -> None:
    assert judged({"items": rows(3), "total": 4990}).is_cut is None
    assert judged({"items": rows(3), "total": 49.9}).is_cut is False


def test_a_total_below_the_rows_says_nothing() -> None:
    assert judged({"items": rows(10), "total_count": 3}, {}, LIMIT_OF_10).limit == 10


def test_a_total_that_only_counts_what_was_returned_does_not_hide_the_limit() -> None:
    assert judged({"items": rows(10), "total": 10}, {}, LIMIT_OF_10).limit == 10
    assert judged({"items": rows(9), "total": 9}, {}, LIMIT_OF_10).is_cut is False


def test_the_last_page_of_a_counted_list_has_nothing_after_it() -> None:
    schema = declared(page={"default": 1}, per_page={"default": 50})
    assert judged({"items": rows(50), "total": 57}, {"page": 1}, schema).is_cut is True
    assert judged({"items": rows(7), "total": 57}, {"page": 2}, schema).is_cut is False
    assert judged({"items": rows(7), "total": 57}, {"offset": 50, "limit": 50}).is_cut is False
    assert judged({"items": rows(10), "total": 57}, {"offset": 10, "limit": 10}).is_cut is True
    from_0 = declared(page={"minimum": 0}, per_page={"default": 50})
    assert judged({"items": rows(7), "total": 57}, {"page": 1}, from_0).is_cut is False


def test_a_list_of_plain_values_has_a_limit_too() -> None:
    extent = judged({"files": ["a", "b"]}, {"limit": 2})
    assert extent.line == "[2 items, the tool's limit (limit): there may be more.]"


def test_texts_that_are_one_element_each_are_counted() -> None:
    result = {"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
    assert extent_of(around_of(Reading(result)), asked_of({"limit": 2}, None)).limit == 2


def test_what_only_the_structured_content_says_is_told_to_readers_of_the_text() -> None:
    result = {
        "content": [{"type": "text", "text": "Found some people."}],
        "structuredContent": {"items": rows(10), "truncated": True},
    }
    extent = extent_of(around_of(Reading(result)), asked_of({}, LIMIT_OF_10))
    assert extent.line == "[10 rows: the tool's limit (limit); there are more.]"


def test_an_error_has_no_limit() -> None:
    result = {"isError": True, "content": [{"type": "text", "text": json.dumps({"errors": rows(10)})}]}
    assert not extent_of(around_of(Reading(result)), asked_of({}, LIMIT_OF_10)).matters


def test_a_limit_is_found_in_an_object_of_arguments_and_behind_a_reference() -> None:
    assert judged(rows(5), {"params": {"page_size": 5}}).limit == 5
    schema = {
        "properties": {"request": {"$ref": "#/$defs/Request"}},
        "$defs": {"Request": {"properties": {"limit": {"default": 5}}}},
    }
    assert judged(rows(5), {}, schema).limit == 5


def test_a_switch_with_the_name_of_a_limit_is_none() -> None:
    assert judged(rows(1), {"count": True}, declared(count={"type": "boolean"})).is_cut is False


@pytest.mark.parametrize(
    "limit", ["ten", "", True, NAN, ENDLESS, -1, 0, 10**400, 1e300, [10], {"limit": 10}, "9" * 1_000_000, None]
)
def test_no_limit_breaks_anything(limit: Any) -> None:
    schema = declared(limit={"type": "integer", "default": limit})
    for extent in (judged(rows(10), {"limit": limit}), judged(rows(10), {}, schema)):
        assert extent.is_cut is not True
        assert extent.limit is None


def test_a_next_page_of_a_megabyte_is_looked_at_only_where_it_begins() -> None:
    assert judged({"items": rows(10), "next": "x" * 1_000_000}).is_cut is True
    assert judged({"items": rows(10), "next": "Call get_item. " * 70_000}).is_cut is None


@pytest.mark.slow
def test_a_key_is_found_among_very_many() -> None:
    value = {**{f"key{number}": number for number in range(100_000)}, "truncated": True}
    result = Reading({"structuredContent": value, "content": []})
    assert extent_of(around_of(result), asked_of(value, {"properties": value})).is_cut is True


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema = {"properties": {"request": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert asked_of({}, schema).limits == ()


def test_a_line_fits_the_room_that_is_reserved_for_it() -> None:
    counter = TokenCounter()
    for name in LIMITS:
        for is_cut in (None, True):
            line = Extent(is_cut, 100_000, name, 100_000, "item", is_told=True).line
            assert counter.count_tokens(line) <= LINE_ROOM, line
    assert counter.count_tokens(Extent(None, 100, "maxRows", 100, is_told=True).line) < 20


def test_what_is_kept_beside_a_result_is_read_again() -> None:
    extent = Extent(None, 100, "maxRows", 100, "row", is_told=True)
    assert Extent.of(extent.remark()) == extent
    assert Extent.of(Extent().remark()) == Extent()


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([10**400, -(10**400), "10", "-1", 10]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=4)
            | st.sampled_from([*SAYING, *LIMITS, "page", "properties", "default", "$ref", "$defs", "params"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(value=ANYTHING, arguments=ANYTHING, schema=ANYTHING, texts=st.lists(ANYTHING, max_size=2))
def test_nothing_raises_and_what_is_said_is_one_short_line(
    value: Any, arguments: Any, schema: Any, texts: list[Any]
) -> None:
    blocks = [{"type": "text", "text": json.dumps(text)} for text in texts]
    around = around_of(Reading({"content": blocks, "structuredContent": value}))
    extent = extent_of(around, asked_of(arguments, schema))
    assert extent.is_cut in (True, False, None)
    assert len(extent.line) < 100
    assert "\n" not in extent.line
    assert Extent.of(extent.remark()).is_cut is (extent.is_cut if extent.matters else None)
