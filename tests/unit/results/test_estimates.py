"""How close sampled estimates come, and how much of a text they read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_optimizer import TokenCounter
from mcp_optimizer.largejson.raw import LargeText
from mcp_optimizer.results.estimates import COUNTED_EXACTLY, Estimator
from mcp_optimizer.results.result_texts import Text

ROOT = Path(__file__).parents[3]
MOST_SAMPLED = 6 * COUNTED_EXACTLY


class Watched(TokenCounter):
    """Adds up the characters that it counts."""

    characters = 0

    def count_tokens(self, text: str) -> int:
        self.characters += len(text)
        return super().count_tokens(text)


def long_texts() -> list[str]:
    """Real texts that are too long to be counted: code by room, pages, data, scripts and styles."""
    rooms = [sorted(room.rglob("*.py")) for room in [*ROOT.glob("src/mcp_optimizer/*"), *ROOT.glob("tests/*")]]
    pages = [sorted((ROOT / place).glob("*.md")) for place in (".", "docs", "benchmarks/results")]
    data = [[path] for ending in ("json", "jsonl", "yml", "js", "css") for path in ROOT.glob(f"[a-z]*/**/*.{ending}")]
    texts = ["\n".join(path.read_text(encoding="utf-8") for path in paths) for paths in [*rooms, *pages, *data]]
    return [text for text in texts if len(text) > COUNTED_EXACTLY]


@pytest.mark.slow
@pytest.mark.requirement("C3", "RM-13")
@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base"])
def test_of_twenty_long_texts_nineteen_are_estimated_within_five_percent(encoding: str) -> None:
    counter = TokenCounter(encoding)
    auto, texts = Estimator("auto", counter), long_texts()
    assert len(texts) >= 20
    estimates = [auto.estimate([text]) for text in texts]
    assert {info.approximation_method for info in estimates} == {f"sampled:tiktoken:{encoding}"}
    counts = [counter.count_tokens(text) for text in texts]
    errors = sorted(abs(info.estimated - count) / count for info, count in zip(estimates, counts, strict=True))
    assert errors[int(len(errors) * 0.95)] <= 0.05


def test_a_text_of_up_to_16000_characters_is_counted() -> None:
    text = "one two three four five six seven "[:32] * 500
    assert len(text) == 16_000
    info = Estimator("auto", counter := TokenCounter()).estimate([text])
    assert (info.estimated, info.approximation_method) == (counter.count_tokens(text), "tiktoken:cl100k_base")


@pytest.mark.parametrize("rows_in_a_part", [1, 2, 5])
def test_rows_as_long_as_the_distance_of_samples_are_not_all_sampled_in_the_same_field(rows_in_a_part: int) -> None:
    # 40 parts; each row is words, then digits, which have three times as many tokens.
    row = "alpha beta gamma delta " * 80 + "7193 5482 " * 184
    text = row * 40 * rows_in_a_part
    counter = TokenCounter()
    assert Estimator("auto", counter).estimate([text]).estimated == pytest.approx(counter.count_tokens(text), rel=0.1)


def megabytes(number: int, made_of: str) -> str:
    return made_of * (number * 1_000_000 // len(made_of))


HUGE: dict[str, Callable[[], list[Text]]] = {
    "50 MB": lambda: [LargeText(memoryview(f'"{megabytes(50, "words and words ")}"'.encode()))],
    "one letter": lambda: [megabytes(5, "a")],
    "no blanks": lambda: [megabytes(5, "".join(random.Random(1).choices("abcdefgh0123456789+/", k=10_000)))],
    "only blanks": lambda: [megabytes(5, " ")],
    "20,000 blocks": lambda: ["word " * 200] * 20_000,
    "one large block of many": lambda: [megabytes(1, "word "), *["short"] * 500],
}


@pytest.mark.slow
@pytest.mark.parametrize("what", HUGE)
def test_however_long_a_text_is_the_same_number_of_characters_is_counted(what: str) -> None:
    counter = Watched()
    assert Estimator("auto", counter).estimate(HUGE[what]()).estimated > 0
    assert counter.characters <= MOST_SAMPLED


@pytest.mark.requirement("RM-13")
def test_many_blocks_are_estimated_as_closely_as_one() -> None:
    chooser = random.Random(3)
    words = "customer order product price number 1029 39.90 shipped returned".split()
    texts = [" ".join(chooser.choices(words, k=chooser.randrange(20, 900))) for _ in range(150)]
    counter = TokenCounter()
    estimated = Estimator("auto", counter).estimate(texts).estimated
    assert estimated == pytest.approx(sum(map(counter.count_tokens, texts)), rel=0.05)
