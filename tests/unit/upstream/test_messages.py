"""The gate: whatever a server sends becomes a typed value or a reason, and never an exception."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.upstream.messages import Answer, Invalid, Notification, Question, capabilities_of, read_message

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "code", "message", "data", "_meta"])


def read(message: Any, limits: Limits = DEFAULT_LIMITS) -> Any:
    return read_message(message, limits)


@pytest.mark.slow
@pytest.mark.promise("malformed-dropped")
@given(JSON | st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON)))
def test_anything_at_all_is_read_without_an_exception_into_parts_of_the_right_types(message: Any) -> None:
    found = read(message)
    if isinstance(found, Answer):
        assert type(found.number) is int
        assert isinstance(found.result, dict)
        assert found.error is None or (type(found.error.code) is int and isinstance(found.error.message, str))
    elif isinstance(found, Question | Notification):
        assert isinstance(found.method, str)
        assert isinstance(found.params, dict)
    else:
        assert isinstance(found, Invalid)
    if isinstance(found, Question):
        hash(found.id)


@pytest.mark.parametrize("bad", [[1], {"a": 1}, float("inf"), float("nan"), True, None, "x" * 2_000, 10**400])
def test_an_id_that_cannot_name_a_request_makes_the_message_invalid(bad: Any) -> None:
    assert isinstance(read({"jsonrpc": "2.0", "id": bad, "method": "ping"}), Invalid)
    assert isinstance(read({"jsonrpc": "2.0", "id": bad, "result": {}}), Invalid | Answer)


@pytest.mark.parametrize("good", [7, "7", 7.0])
def test_an_answer_is_ours_in_whatever_spelling_its_number_comes_back(good: Any) -> None:
    assert read({"id": good, "result": {"a": 1}}) == Answer(7, {"a": 1})


@pytest.mark.parametrize("params", [[1], "text", 7, True])
def test_params_that_are_no_object_drop_a_notification_and_refuse_a_request(params: Any) -> None:
    assert read({"method": "notifications/message", "params": params}) == Invalid(
        "the params of a notification are not an object"
    )
    assert read({"id": "q", "method": "roots/list", "params": params}).id == "q"


def test_an_empty_list_is_how_some_languages_write_an_empty_object() -> None:
    assert read({"method": "notifications/x", "params": []}) == Notification("notifications/x", {})
    assert read({"id": 1, "result": []}) == Answer(1, {})


@pytest.mark.parametrize("result", ["text", 7, [1], True])
def test_a_result_that_is_no_object_ends_the_call_with_an_error(result: Any) -> None:
    assert read({"id": 1, "result": result}).error.message == "The server's result is not an object."


@pytest.mark.parametrize("error", ["no", ["no"], 7, {"message": {"a": 1}}, {"code": "x"}, {"code": 10**30}, {}])
def test_an_error_of_any_shape_is_an_error_with_a_code_and_a_text(error: Any) -> None:
    found = read({"id": 1, "error": error}).error
    assert (type(found.code), bool(found.message)) == (int, True)


def test_a_long_error_is_cut_and_its_large_data_left_out() -> None:
    limits = Limits(error_text=200)
    found = read({"id": 1, "error": {"code": 5, "message": "x" * 10_000, "data": ["y" * 10_000]}}, limits).error
    assert found.message.startswith("x" * 199 + "…")
    assert found.data is None
    assert "left out" in found.message


@pytest.mark.parametrize(
    "progress", [{}, {"progress": "half", "progressToken": 1}, {"progress": 1, "progressToken": [1]}]
)
def test_progress_without_a_number_or_a_token_is_dropped(progress: Any) -> None:
    assert isinstance(read({"method": "notifications/progress", "params": progress}), Invalid)


@pytest.mark.parametrize("level", [None, [1], {"a": 1}, "loud", 7])
def test_a_log_message_of_no_known_level_is_dropped(level: Any) -> None:
    assert isinstance(read({"method": "notifications/message", "params": {"level": level, "data": "x"}}), Invalid)


@pytest.mark.parametrize("declared", [{"tools": []}, {"tools": True}, {"tools": "yes"}, {"tools": {}}])
def test_a_capability_that_is_declared_in_an_odd_way_is_declared(declared: Any) -> None:
    assert capabilities_of(declared) == {"tools": {}}


@pytest.mark.parametrize("declared", [[], None, True, "tools", {"tools": None}, {"tools": False}])
def test_what_is_not_declared_is_not_there(declared: Any) -> None:
    assert capabilities_of(declared) == {}
