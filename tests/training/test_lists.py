"""What the lists measure was not trained on: no training request is nearly one of theirs."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from pathlib import Path

from training import written

EVAL = Path(written.__file__).parent / "data" / "eval"
ALIKE = 0.7


def words_of(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def listed() -> list[frozenset[str]]:
    paths = sorted(EVAL.glob("*.jsonl"))
    return [words_of(json.loads(line)["request"]) for path in paths for line in path.read_text("utf-8").splitlines()]


def trained() -> list[str]:
    return [request for kind in written.MORE_KINDS for one in written.read_more(kind) for request in one.requests]


def rarest(words: frozenset[str], frequency: Counter[str]) -> list[str]:
    """Two sets that are alike share at least one of these."""
    ordered = sorted(words, key=lambda word: (frequency[word], word))
    return ordered[: len(words) - math.ceil(ALIKE * len(words)) + 1]


def alike(requests: list[str], lists: list[frozenset[str]]) -> list[str]:
    frequency = Counter(word for words in lists for word in words)
    by_word: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
    for words in lists:
        for word in rarest(words, frequency):
            by_word[word].append(words)
    found = []
    for request in requests:
        words = words_of(request)
        near = (other for word in rarest(words, frequency) for other in by_word.get(word, ()))
        if any(len(words & other) >= ALIKE * len(words | other) for other in near):
            found.append(request)
    return found


def test_requests_that_are_nearly_the_same_are_noticed() -> None:
    lists = [words_of("what did I change but not stage yet"), words_of("list the boards")]
    asked = ["what did i change, but not stage?", "list all boards of Ada", "List the boards!", "stage what changed"]
    assert alike(asked, lists) == [asked[0], asked[2]]


def test_no_training_request_is_nearly_one_of_the_lists() -> None:
    requests = trained()
    assert len(requests) > 40_000
    assert alike(requests, listed()) == []
