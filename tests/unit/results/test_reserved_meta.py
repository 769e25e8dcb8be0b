"""Metadata keys that are reserved for the gateway are never taken from a server."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.results.metadata import of_a_tool, without_ours

SPOOFED = {
    "mcp-optimizer/tool": {"server": "bank"},
    "mcp-optimizer/": 1,
    "tokens": {"estimated": 0},
    "performance": {},
    "data": {"rowCount": 1},
    "cost": {},
    "vendor/key": 1,
}


def test_reserved_keys_are_dropped_and_everything_else_is_kept() -> None:
    sent = {"messages": [1], "_meta": dict(SPOOFED)}
    kept = {"tokens", "performance", "data", "cost", "vendor/key"}
    assert set(without_ours(sent)["_meta"]) == kept
    assert without_ours(sent)["messages"] == [1]
    assert set(sent["_meta"]) == set(SPOOFED)


def test_of_a_tools_result_we_also_say_what_it_cost() -> None:
    sent = {"content": [], "_meta": dict(SPOOFED), "meta": dict(SPOOFED)}
    assert of_a_tool(sent) == {"content": [], "_meta": {"vendor/key": 1}, "meta": {"vendor/key": 1}}


@pytest.mark.parametrize("meta", [None, "text", [1], 5, {"mcp-optimizer/tool": 1}])
def test_a_meta_that_is_no_object_or_holds_nothing_else_goes(meta: Any) -> None:
    assert without_ours({"content": [], "_meta": meta}) == {"content": []}


def test_what_has_no_meta_of_ours_passes_as_it_is() -> None:
    every: list[dict[str, Any]] = [{"content": []}, {"content": [], "_meta": {}}, {"meta": "text"}, {"_meta": {"a": 1}}]
    for sent in every:
        assert of_a_tool(dict(sent)) == sent
