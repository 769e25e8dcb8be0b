"""Hashes stay the same from one version to the next, because people compare those of old entries with new ones."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.access.audit.recording import HashKey, digest_of_arguments, digest_of_result
from mcp_optimizer.domain.audit import AuditEntry


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        ({"q": "a"}, "4d3fee4390a0006c"),
        ({"path": "/tmp/ü", "limit": 10, "all": True, "x": None}, "b77b870a34bd85bb"),
        ({"x": None, "all": True, "limit": 10, "path": "/tmp/ü"}, "b77b870a34bd85bb"),
        ({"b": [1.5, {"y": 1, "x": 2}], "a": "s"}, "604551d7c7851d0f"),
        ({"b": "ü" * 40_000, "a": "s"}, "dd95571a927aad94"),
        ({"a": "s", "b": "ü" * 40_000}, "dd95571a927aad94"),
        ({"b": "x" * 70_000, "a": "s"}, "b3f57e157f07fb56"),
    ],
)
def test_arguments_have_the_hash_that_they_always_had(arguments: dict[str, Any], begins: str) -> None:
    assert digest_of_arguments(arguments).hash.startswith(begins)


@pytest.mark.parametrize(
    ("result", "begins"),
    [
        ({"content": [{"type": "text", "text": "hello"}]}, "5ff8477fc8aded40"),
        ({"content": [{"type": "text", "text": "hello"}], "isError": True}, "5ff8477fc8aded40"),
        ({"content": [{"type": "text", "text": "hello", "annotations": {}}]}, "5ff8477fc8aded40"),
        (
            {
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "resource", "resource": {"uri": "x", "text": "b"}},
                ]
            },
            "47086ac2230d9efb",
        ),
    ],
)
def test_a_result_has_the_hash_that_it_always_had(result: dict[str, Any], begins: str) -> None:
    assert digest_of_result(result).startswith(begins)


def test_a_second_thing_that_a_result_says_changes_its_hash() -> None:
    text = {"content": [{"type": "text", "text": "hello"}]}
    others: list[dict[str, Any]] = [
        {"content": [{"type": "text", "text": "hello", "blob": "0"}]},
        {"content": [{"type": "text", "text": "hello", "resource": {"text": "1"}}]},
        {**text, "contents": [{"text": "2"}]},
        {**text, "messages": [{"content": {"text": "3"}}]},
        {**text, "completion": {"values": ["4"]}},
    ]
    assert len({digest_of_result(result) for result in (text, *others)}) == len(others) + 1


def test_both_hashes_of_an_entry_are_keyed_and_nothing_else_of_it_changes() -> None:
    plain = digest_of_result({"content": [{"type": "text", "text": "hello"}]})
    entry = AuditEntry(1, tool="echo", arguments_hash=plain, arguments_bytes=7, milliseconds=1.5, trace_id="t")
    keyed = HashKey(b"k").keyed(entry)
    assert keyed == entry._replace(arguments_hash="332ec2d3:5755631ec60b87d84c3725c0fc4f3c70")
    assert HashKey(b"k").keyed(entry._replace(result_hash=plain)).result_hash == keyed.arguments_hash
