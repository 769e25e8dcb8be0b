"""A large object carries its JSON: it is sent, hashed and looked up in the cache without being written again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_optimizer.access.audit.recording import digest_of_arguments
from mcp_optimizer.largejson.compact_json import Written, written
from mcp_optimizer.results.cache import CacheKey
from mcp_optimizer.upstream.peer import to_wire

LARGE = {"rows": list(range(100_000)), "text": 'a "quoted" line\nand another \u2028 \U0001f600'}


def message(arguments: Any) -> dict[str, Any]:
    params = {"name": "t", "arguments": arguments, "_meta": {"progressToken": 1}}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def test_a_large_object_is_equal_to_itself_and_carries_its_json() -> None:
    carrying = written(LARGE)
    assert isinstance(carrying, Written)
    assert carrying == LARGE
    assert json.loads(carrying.json) == LARGE
    assert written(carrying) is carrying


@pytest.mark.parametrize(
    "value", [None, "x" * 1_000_000, [1] * 500_000, {"a": 1}, {"half": "\ud800" + "x" * 1_000_000}]
)
def test_what_is_small_or_no_object_or_cannot_be_written_stays_what_it_is(value: Any) -> None:
    assert written(value) is value


def test_a_message_with_it_is_sent_as_if_it_were_written_again() -> None:
    assert to_wire(message(written(LARGE))) == to_wire(message(LARGE))


def test_nothing_in_it_is_taken_for_the_place_of_its_json() -> None:
    hostile = {"a": '"arguments":null', "b": ["\\", '\\"'] * 100_000}
    sent = to_wire(message(written(hostile)))
    assert b"\n" not in sent
    assert json.loads(sent) == message(hostile)


def test_it_has_the_hash_of_the_same_arguments_and_its_own_place_in_the_cache() -> None:
    assert digest_of_arguments(written(LARGE)) == digest_of_arguments(LARGE)
    other = {**LARGE, "rows": [*LARGE["rows"], 1]}
    keys = {CacheKey.of("ada", "s", "t", "d", arguments) for arguments in (written(LARGE), written(dict(LARGE)))}
    assert len(keys) == 1
    assert CacheKey.of("ada", "s", "t", "d", written(other)) not in keys
