"""Requests that no specialized tool fits are answered by general tools, if there are any."""

from __future__ import annotations

import numpy as np
import pytest

from mcp_optimizer.db.models import McpTool
from mcp_optimizer.search.encoders.choose import load_encoder
from mcp_optimizer.search.engine import Encoder, SearchIndex, SearchResult
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import Vocabulary, count_terms
from mcp_optimizer.search.tool_texts import document, tool_text

SPECIAL = {
    "create_refund": "Refund a payment intent in Stripe, in whole or in part.",
    "list_invoices": "List the invoices of a customer.",
    "search_stripe_documentation": "Search the Stripe documentation for an integration question.",
    "cancel_subscription": "Cancel a customer's subscription at the end of the period.",
}
FOR_ANYTHING = {
    "brave_web_search": "Performs a web search: general queries, news, articles and online content.",
    "run_python": "Runs Python code in a sandbox and returns its output.",
}
QUESTION = "how tall is the Eiffel Tower"


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    found = load_encoder("bundled")
    assert found is not None
    return found


def searched(request: str, tools: dict[str, str], encoder: Encoder | None) -> tuple[list[str], SearchResult]:
    vocabulary = Vocabulary()
    made = [McpTool(name=name, description=text, inputSchema={"type": "object"}) for name, text in tools.items()]
    vectors = encoder.embed_tools([tool_text("shop", tool) for tool in made]) if encoder else [None] * len(made)
    entries = [
        Entry("shop", tool.name, count_terms(document("shop", tool), vocabulary), vector)
        for tool, vector in zip(made, vectors, strict=True)
    ]
    result = SearchIndex(entries, vocabulary, encoder).search(request, "", np.ones(len(made), dtype=np.bool_), 8)
    return [made[hit.position].name for hit in result.hits], result


def test_a_question_that_no_special_tool_answers_finds_the_web_search(encoder: Encoder) -> None:
    names, _ = searched(QUESTION, SPECIAL | FOR_ANYTHING, encoder)
    assert "brave_web_search" in names


def test_a_catalog_without_general_tools_does_not_answer_such_a_question(encoder: Encoder) -> None:
    _, result = searched(QUESTION, SPECIAL, encoder)
    assert not result.fits
    assert all(hit.is_only_near for hit in result.hits)


def test_what_is_there_for_anything_is_marked_and_what_fits_is_not(encoder: Encoder) -> None:
    names, result = searched(QUESTION, SPECIAL | FOR_ANYTHING, encoder)
    assert all(hit.is_general for hit in result.hits)
    assert set(names) <= set(FOR_ANYTHING)
    names, result = searched("refund a payment", SPECIAL | FOR_ANYTHING, encoder)
    assert names[0] == "create_refund"
    assert not result.hits[0].is_general


def test_every_score_is_a_likelihood(encoder: Encoder) -> None:
    for request in ("refund a payment", "create_refund", QUESTION, "serach the wbe"):
        _, result = searched(request, SPECIAL | FOR_ANYTHING, encoder)
        assert all(0.0 <= hit.score <= 1.0 for hit in result.hits)
