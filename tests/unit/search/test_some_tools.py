"""Some tools of an index are ranked as they would be alone, whatever the others are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcp_optimizer.search import engine
from mcp_optimizer.search.engine import SearchIndex, SearchResult
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import FIELDS, LexicalIndex, Vocabulary, count_terms
from mcp_optimizer.search.tool_texts import Document
from tests.unit.search.toy_encoder import ToyEncoder

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("bm25_golden.json").read_text(encoding="utf-8"))
DOCUMENTS = [Document(**text) for text in GOLDEN["documents"]]
DEPRECATED = {3: ("boardsmove",), 11: (), 20: ("cardslist", "x")}
REQUESTS = (
    "list the cards of a board",
    "delete a colum",
    "read the file and add a picture",
    "check_health",
    "health check",
    "move it, but do not archive the instance",
    "total of the numbers. then send a letter about the total",
    "list the local files in ~/work",
    "zebra",
    "",
)
CHOICES = [
    list(range(len(DOCUMENTS))),
    list(range(0, len(DOCUMENTS), 2)),
    list(range(40, len(DOCUMENTS))),
    [5],
    [],
]


def entries(positions: Sequence[int], vocabulary: Vocabulary, encoder: ToyEncoder | None) -> list[Entry]:
    made = []
    for position in positions:
        text = DOCUMENTS[position]
        vector = None if encoder is None or position % 7 == 0 else encoder.embed_queries([text.description])[0]
        successors = DEPRECATED.get(position)
        name = text.name.replace(" ", "_")
        made.append(Entry(text.server, name, count_terms(text, vocabulary), vector, successors))
    return made


def whole(encoder: ToyEncoder | None = None) -> SearchIndex:
    vocabulary = Vocabulary()
    return SearchIndex(entries(range(len(DOCUMENTS)), vocabulary, encoder), vocabulary, encoder)


def alone(positions: Sequence[int], encoder: ToyEncoder | None = None) -> SearchIndex:
    vocabulary = Vocabulary()
    return SearchIndex(entries(positions, vocabulary, encoder), vocabulary, encoder)


def nothing_needed() -> list[Entry]:
    raise AssertionError("the parts of the whole index are enough")


def searched(index: SearchIndex, request: str) -> SearchResult:
    return index.search(request, "", np.ones(index.size, dtype=np.bool_), 10)


def assert_equal(one: SearchResult, other: SearchResult) -> None:
    assert [hit.position for hit in one.hits] == [hit.position for hit in other.hits]
    assert [hit.score for hit in one.hits] == pytest.approx([hit.score for hit in other.hits], abs=2e-4)
    assert (one.further, one.counterparts) == (other.further, other.counterparts)


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("positions", CHOICES, ids=len)
def test_words_count_as_if_there_were_no_other_tools(positions: list[int]) -> None:
    vocabulary, own = Vocabulary(), Vocabulary()
    index = LexicalIndex([count_terms(text, vocabulary) for text in DOCUMENTS], vocabulary)
    part = index.some(np.array(positions, dtype=np.int64))
    expected = LexicalIndex([count_terms(DOCUMENTS[at], own) for at in positions], own)
    assert part.known_terms() == sorted(expected.known_terms())
    for query in [*GOLDEN["queries"], ["nothing", "of", "this"], []]:
        np.testing.assert_allclose(part.scores(query), expected.scores(query), rtol=1e-5)
        np.testing.assert_allclose(part.met(query), expected.met(query), rtol=1e-5)
        for field in FIELDS:
            np.testing.assert_allclose(part.field_scores(query, field), expected.field_scores(query, field), rtol=1e-5)
        for field in ("name", "server"):
            np.testing.assert_allclose(part.named(query, field), expected.named(query, field), rtol=1e-5)
        assert [part.knows(term) for term in query] == [expected.knows(term) for term in query]


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("has_encoder", [False, True])
@pytest.mark.parametrize("positions", CHOICES, ids=len)
def test_a_search_among_some_tools_finds_what_a_search_in_an_index_of_their_own_finds(
    positions: list[int], has_encoder: bool
) -> None:
    encoder = ToyEncoder() if has_encoder else None
    part, expected = whole(encoder).confined(positions, nothing_needed), alone(positions, encoder)
    assert (part.size, part.by_words_only) == (expected.size, expected.by_words_only)
    for request in REQUESTS:
        assert_equal(searched(part, request), searched(expected, request))
    for name in ("health_check", "healthCheck", "no_such"):
        assert list(part.spelt_like(name)) == list(expected.spelt_like(name))


def test_some_of_some_tools_are_some_of_all() -> None:
    index = whole(ToyEncoder())
    some = index.confined(range(10, 60), nothing_needed)
    fewer = some.confined(range(20, 30), nothing_needed)
    assert fewer is index.confined(range(30, 40), nothing_needed)


def test_many_of_the_tools_get_an_index_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "EXACT_UP_TO", 3)
    encoder, positions = ToyEncoder(), list(range(0, len(DOCUMENTS), 2))
    made = whole(encoder).confined(positions, lambda: entries(positions, Vocabulary(), None))
    for request in REQUESTS:
        assert_equal(searched(made, request), searched(alone(positions, encoder), request))


def test_the_order_in_which_others_came_does_not_show() -> None:
    vocabulary = Vocabulary()
    # Terms are numbered as they come, and the numbers give them their place in every sum and list.
    for text in reversed(DOCUMENTS):
        count_terms(text, vocabulary)
    index = SearchIndex(entries(range(len(DOCUMENTS)), vocabulary, None), vocabulary)
    positions = range(40, len(DOCUMENTS))
    for request in REQUESTS:
        part = searched(index.confined(positions, nothing_needed), request)
        assert part == searched(whole().confined(positions, nothing_needed), request)
