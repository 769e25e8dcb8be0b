"""Every result states its cost under the keys that clients read; keys that do not apply are absent."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mcp_optimizer.results.calls import ResultOptions
from mcp_optimizer.results.estimates import COUNTED_EXACTLY, Estimator, TextKind, kind_of
from mcp_optimizer.results.metadata import NOT_COUNTED, WARNING
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.results.result_texts import Reading
from mcp_optimizer.token_counter import TokenCounter

PROSE = "The quick brown fox jumps over the lazy dog, and then it has a rest beside the old stone bridge. "


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


async def described(result: dict[str, Any], method: str = "auto", **options: Any) -> dict[str, Any]:
    results = Results(Estimator(method, TokenCounter()), None, ResultOptions(**options))
    return await results.described(result, time.perf_counter())


@pytest.mark.requirement("C1", "RM-9")
async def test_a_plain_text_has_tokens_and_performance_and_no_data() -> None:
    meta = (await described({"content": [text("Hello, world!")]}))["_meta"]
    assert meta["tokens"] == {"estimated": 4, "approximationMethod": "tiktoken:cl100k_base", "warning": WARNING}
    assert meta["performance"] == {"executionTimeMs": 0, "cachedResult": False}
    assert set(meta) == {"tokens", "performance"}


async def test_the_servers_own_meta_is_kept() -> None:
    result = {"content": [text("x")], "_meta": {"vendor/key": [1]}, "futureField": 2}
    answered = await described(result)
    assert answered["_meta"]["vendor/key"] == [1]
    assert answered["futureField"] == 2
    assert result["_meta"] == {"vendor/key": [1]}


async def test_a_server_that_has_yet_to_ask_is_not_described() -> None:
    asked = {"resultType": "input_required", "inputRequests": {}}
    assert await described(asked) == asked


async def test_what_is_only_described_is_not_written_differently() -> None:
    pretty = [text('[ {"a": 1} ]')]
    answered = await described({"content": pretty})
    assert answered["content"] == pretty
    assert answered["_meta"]["data"] == {"rowCount": 1, "columnCount": 1, "truncated": False}


@pytest.mark.requirement("C2")
async def test_plain_meta_is_written_only_when_asked_for() -> None:
    assert "meta" not in await described({"content": []})
    answered = await described({"content": [text("x")], "_meta": {"vendor": 1}}, plain_meta=True)
    assert answered["meta"] == {key: value for key, value in answered["_meta"].items() if key != "vendor"}
    assert set(answered["meta"]) == {"tokens", "performance"}


async def test_an_image_is_not_counted_and_that_is_said() -> None:
    image = {"type": "image", "data": "A" * 1000, "mimeType": "image/png"}
    tokens = (await described({"content": [text("Hello, world!"), image]}))["_meta"]["tokens"]
    assert tokens["estimated"] == 4
    assert tokens["warning"] == f"{WARNING}; {NOT_COUNTED}"


def test_structured_content_is_counted_where_there_is_no_text() -> None:
    assert Reading({"content": [], "structuredContent": {"a": [1, 2]}}).texts == ['{"a":[1,2]}']
    assert Reading({"content": [text("said")], "structuredContent": {"a": 1}}).texts == ["said"]


def test_the_text_of_a_resource_and_unknown_blocks_are_text_a_blob_is_not() -> None:
    blocks = [
        {"type": "resource", "resource": {"uri": "a://b", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "a://b", "blob": "AAAA"}},
        {"type": "resource_link", "uri": "a://b", "name": "b"},
        "not even an object",
    ]
    reading = Reading({"content": blocks})
    assert reading.texts == ["inside", '{"type":"resource_link","uri":"a://b","name":"b"}', '"not even an object"']
    assert reading.has_uncounted


def test_half_a_surrogate_pair_and_a_missing_content_are_no_reason_to_fail() -> None:
    assert Reading({"structuredContent": {"a": "\ud800"}}).texts == ['{"a":"\ud800"}']
    assert Reading({"content": "nonsense"}).texts == []


@pytest.mark.requirement("C3", "RM-2", "RM-11", "RM-12")
@pytest.mark.parametrize(
    ("method", "sample", "expected"),
    [
        ("character_count_div_4", "x" * 9, 3),
        ("character_count_div_3", "x" * 9, 3),
        ("character_count_div_3", "x" * 10, 4),
        ("tiktoken:cl100k_base", "Hello, world!", 4),
        ("tiktoken:o200k_base", "Hello, world!", 4),
    ],
)
def test_each_method_is_named_and_does_what_its_name_says(method: str, sample: str, expected: int) -> None:
    info = Estimator(method, TokenCounter()).estimate([sample])
    assert (info.estimated, info.approximation_method) == (expected, method)


def test_auto_counts_what_is_short_and_estimates_what_is_long() -> None:
    counter = TokenCounter()
    auto = Estimator("auto", counter)
    assert auto.estimate([PROSE]).approximation_method == "tiktoken:cl100k_base"
    long = PROSE * (COUNTED_EXACTLY // len(PROSE) * 20)
    info = auto.estimate([long])
    assert info.approximation_method != "tiktoken:cl100k_base"
    assert info.estimated == pytest.approx(counter.count_tokens(long), rel=0.05)


def test_limits_are_held_by_the_encoding_that_the_method_names() -> None:
    assert Estimator("tiktoken:o200k_base", TokenCounter()).counter.encoding_name == "o200k_base"
    assert Estimator("auto", TokenCounter()).counter.encoding_name == "cl100k_base"
    assert Estimator("character_count_div_4", TokenCounter("o200k_base")).counter.encoding_name == "o200k_base"


def test_a_text_the_tokenizer_gives_up_on_is_estimated_by_its_kind() -> None:
    class Choking(TokenCounter):
        def count_tokens(self, text: str) -> int:
            raise ValueError("the tokenizer choked")

    info = Estimator("auto", Choking()).estimate([PROSE])
    assert info.estimated == pytest.approx(TokenCounter().count_tokens(PROSE), rel=0.3)
    assert info.approximation_method == "calibrated:prose"


@pytest.mark.parametrize(
    ("sample", "kind"),
    [
        ('{"id": 1, "name": "Ada"}', TextKind.JSON),
        (PROSE, TextKind.PROSE),
        ("def f(a, b):\n    if a == b:\n        return {a: [b]}\n", TextKind.CODE),
        ("これは日本語の文章です。", TextKind.CJK),
        ("A função não está disponível até amanhã à tarde; é só uma questão de organização.", TextKind.ACCENTED),
    ],
)
def test_kinds_of_text_are_told_apart(sample: str, kind: TextKind) -> None:
    assert kind_of(sample * 50) is kind
