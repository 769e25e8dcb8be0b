"""What the SDK is not shown is always something that it would accept, and read as we do."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    RequestParams,
)
from mcp_types.methods import validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_optimizer.relay.sdk_calls import meta_of
from mcp_optimizer.serving.plain_calls import PlainCalls

CALL = "tools/call"
ANY = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.just([1])
KEYS = ["progressToken", "progress_token", "other", CLIENT_INFO_META_KEY, LOG_LEVEL_META_KEY]
INFOS = st.sampled_from([{"name": "x"}, {"name": "x", "version": "1"}, {"name": "x", "version": 1}])
ENVELOPE = {PROTOCOL_VERSION_META_KEY: MODERN_PROTOCOL_VERSIONS[-1], CLIENT_CAPABILITIES_META_KEY: {}}
_PARTS = st.dictionaries(st.sampled_from(KEYS), ANY | INFOS | st.just({}), max_size=3)
METAS = _PARTS | _PARTS.map(lambda meta: {**meta, **ENVELOPE})
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=3) | ANY,
        "arguments": st.dictionaries(st.text(max_size=3), ANY, max_size=2) | ANY,
        "_meta": METAS | ANY,
        "task": ANY | st.just({"ttl": 1}),
        "requestState": ANY,
    },
)
VERSIONS = [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS]


def is_accepted(version: str, params: dict[str, Any]) -> bool:
    try:
        validate_client_request(CALL, version, params)
    except ValidationError:
        return False
    return True


@given(st.lists(st.tuples(CALLS, st.sampled_from(VERSIONS)), min_size=1, max_size=4))
def test_a_call_that_is_not_shown_to_the_sdk_is_one_that_it_accepts(calls: list[tuple[dict[str, Any], str]]) -> None:
    known = PlainCalls()
    for params, version in calls:
        if known.has(CALL, version, params):
            assert is_accepted(version, params)
        elif is_accepted(version, params):
            known.learn(CALL, version, params)


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
def test_an_ordinary_call_of_a_legacy_client_is_not_shown_to_the_sdk(version: str) -> None:
    for more in ({}, {"arguments": {"text": "x"}}, {"_meta": {"progressToken": 7}}, {"_meta": {"progressToken": "7"}}):
        assert PlainCalls().has(CALL, version, {"name": "echo", **more})


def test_what_a_modern_client_says_of_itself_is_shown_to_the_sdk_once() -> None:
    known, version = PlainCalls(), MODERN_PROTOCOL_VERSIONS[-1]
    first = {"name": "echo", "_meta": {**ENVELOPE, "progressToken": 1}}
    assert not known.has(CALL, version, first)
    known.learn(CALL, version, first)
    assert known.has(CALL, version, {"name": "other", "arguments": {"a": 1}, "_meta": {**ENVELOPE, "progressToken": 2}})
    assert not known.has(CALL, version, {"name": "echo", "_meta": {**ENVELOPE, CLIENT_INFO_META_KEY: {"name": "x"}}})
    assert not known.has("prompts/get", version, first)


def test_only_so_many_clients_are_remembered() -> None:
    known, version = PlainCalls(), MODERN_PROTOCOL_VERSIONS[-1]
    for number in range(1_000):
        known.learn(CALL, version, {"name": "echo", "_meta": {**ENVELOPE, "other": number}})
    remembered = sum(
        known.has(CALL, version, {"name": "echo", "_meta": {**ENVELOPE, "other": number}}) for number in range(1_000)
    )
    assert 0 < remembered <= 64


@given(CALLS)
def test_metadata_is_read_as_the_sdk_reads_it(params: dict[str, Any]) -> None:
    read = None
    with suppress(ValidationError):
        read = RequestParams.model_validate({"_meta": params.get("_meta")}, by_name=False).meta
    assert meta_of(params) == read
