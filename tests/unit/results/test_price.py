"""What a result costs in money, for the model that the user names."""

from __future__ import annotations

import time

import pytest

from mcp_optimizer.app.part_options import price_of_results
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.metadata import Price
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.token_counter import TokenCounter


@pytest.mark.requirement("C4")
def test_the_price_is_that_of_the_model_that_is_named() -> None:
    price = price_of_results(load_settings({"price_model": "openai:gpt-4o"}, {}))
    assert price is not None
    assert (price.model, price.currency) == ("gpt-4o", "USD")
    assert 0 < price.per_million < 100
    assert price_of_results(load_settings({}, {})) is None


@pytest.mark.requirement("C4", "RM-14")
async def test_the_cost_stands_in_the_metadata() -> None:
    results = Results(Estimator("auto", TokenCounter()), price=Price("gpt-x", "USD", 2.5))
    sent = {"content": [{"type": "text", "text": "Hello, world!"}]}
    cost = (await results.described(sent, time.perf_counter()))["_meta"]["cost"]
    assert cost == {"model": "gpt-x", "currency": "USD", "input": 0.00001}
