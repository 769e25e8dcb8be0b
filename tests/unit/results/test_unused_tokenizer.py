"""The tokenizer is in memory only while somebody needs it, and counts the same after it was given back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from mcp_optimizer.results.estimates import Estimator, Method
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.token_counter import TokenCounter


@pytest.mark.slow
def test_a_counter_that_was_given_back_counts_the_same_again() -> None:
    counter = TokenCounter()
    loaded = [counter.loaded is not None]
    before = counter.count_tokens("twelve times seven")
    loaded.append(counter.loaded is not None)
    counter.give_back()
    loaded.append(counter.loaded is not None)
    assert loaded == [False, True, False]
    assert counter.count_tokens("twelve times seven") == before


@pytest.mark.slow
def test_many_threads_that_count_first_load_it_once() -> None:
    counter = TokenCounter("o200k_base")
    counter.give_back()
    with ThreadPoolExecutor(8) as threads:
        loaded = set(threads.map(lambda _: id(counter.encoding), range(32)))
    assert len(loaded) == 1


async def test_the_first_result_loads_it_and_says_that_results_are_counted() -> None:
    counter = TokenCounter()
    results = Results.plain(counter)
    counted = [results.are_counted]
    described = await results.described({"content": [{"type": "text", "text": "one two three"}]}, 0.0)
    assert described["_meta"]["tokens"]["estimated"] == counter.count_tokens("one two three")
    assert [*counted, results.are_counted] == [False, True]
    assert counter.loaded is not None


async def test_a_method_that_does_not_count_does_not_load_it() -> None:
    counter = TokenCounter()
    await Estimator(Method.DIV_4, counter).ready()
    assert counter.loaded is None
