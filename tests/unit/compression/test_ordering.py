"""The type is placed where it costs the fewest tokens, and nothing else changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from mcp_optimizer import TokenCounter
from mcp_optimizer.compression.compress import Ordering, ordering
from mcp_optimizer.compression.walk import DEEPEST
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.token_counter import VOCABULARIES
from tests.unit.compression.cases import any_schema, nested

SENTENCE = {"type": "string", "description": "Where to look."}
WORDS = {"type": "string", "description": "Where to look"}


@pytest.fixture(params=list(VOCABULARIES))
def counter(request: pytest.FixtureRequest) -> TokenCounter:
    return TokenCounter(request.param)


def keys(schema: dict[str, Any]) -> list[str]:
    return list(schema)


def test_the_type_goes_behind_a_sentence_and_stays_before_a_word() -> None:
    changed = Ordering(TokenCounter().count_tokens).apply({"properties": {"a": SENTENCE, "b": WORDS}})
    assert keys(changed["properties"]["a"]) == ["description", "type"]
    assert changed["properties"]["b"] is WORDS


def test_an_ordered_schema_is_smaller(counter: TokenCounter) -> None:
    schema = {"type": "object", "properties": {f"p{n}": SENTENCE for n in range(5)}, "required": ["p0"]}
    changed = Ordering(counter.count_tokens).apply(schema)
    assert changed == schema
    assert counter.count_tokens(compact(changed)) < counter.count_tokens(compact(schema))


def test_what_has_no_type_or_ends_in_it_stays_the_same_object(counter: TokenCounter) -> None:
    ordered = Ordering(counter.count_tokens)
    for schema in ({}, {"description": "Any."}, {"description": "Any.", "type": "string"}, {"type": None, "a": "b."}):
        assert ordered.apply(schema) is schema


def test_each_ending_is_counted_once() -> None:
    counted: list[str] = []

    def cost(text: str) -> int:
        counted.append(text)
        return len(text)

    once = Ordering(cost)
    once.apply({"properties": {f"p{n}": SENTENCE for n in range(50)}})
    before = len(counted)
    once.apply({"properties": {f"q{n}": {"type": "integer", "description": f"The {n}th."} for n in range(50)}})
    assert before == len(counted) > 0


def test_one_vocabulary_has_one_ordering() -> None:
    counter = TokenCounter()
    assert ordering(counter.count_tokens) is ordering(counter.count_tokens)


@given(any_schema)
def test_only_the_order_changes(junk: dict[str, Any]) -> None:
    # With this counter a text costs less the later its last type is, so every type is moved.
    changed = Ordering(lambda text: -text.rfind("type")).apply(junk)
    assert json.loads(json.dumps(changed)) == json.loads(json.dumps(junk))


def test_a_schema_of_any_depth_passes(counter: TokenCounter) -> None:
    deep = nested(DEEPEST + 20)
    assert Ordering(counter.count_tokens).apply(deep) == deep
