"""Finding tools: words as people write them, BM25 as in the textbook, meaning if there is an encoder, and results that
contain only allowed tools that fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.search.engine import Encoder, SearchIndex, SearchResult, learned
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import FIELDS, Floats, LexicalIndex, Vocabulary, count_terms
from mcp_optimizer.search.ranker import FEATURES, FIT_FEATURES, Mask
from mcp_optimizer.search.tool_texts import Document, document, tool_text
from mcp_optimizer.search.words import name_key, terms, words
from tests.trying import at_most
from tests.unit.catalogs import mcp_tool
from tests.unit.search.toy_encoder import ToyEncoder, UnreachableEncoder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("createIssue", ["create", "issue"]),
        ("CreateIssue", ["create", "issue"]),
        ("create_issue", ["create", "issue"]),
        ("create-issue", ["create", "issue"]),
        ("create.issue/now", ["create", "issue", "now"]),
        ("__create__issue__", ["create", "issue"]),
        ("HTTPServer", ["http", "server"]),
        ("getHTTPServerURL", ["get", "http", "server", "url"]),
        ("CREATE_ISSUE", ["create", "issue"]),
        ("OAuth2Token", ["o", "auth", "2", "token"]),
        ("v2beta10", ["v", "2", "beta", "10"]),
        ("Create an issue, please!", ["create", "an", "issue", "please"]),
        ("café", ["café"]),
        ("cafe\u0301", ["café"]),
        ("Übersicht_öffnen", ["übersicht", "öffnen"]),
        ("criarCartão", ["criar", "cartão"]),
        ("listarÉpicos", ["listar", "épicos"]),
        ("São Paulo não está", ["são", "paulo", "não", "está"]),
        ("Łódź", ["łódź"]),
        ("создать_задачу", ["создать", "задачу"]),
        ("天气", ["天气"]),
        ("天气预报", ["天气", "气预", "预报"]),
        ("get天气Now", ["get", "天气", "now"]),
        ("カード作成", ["カー", "ード", "ド作", "作成"]),
        ("", []),
        (" _-./ ", []),
        ("🚀", []),
    ],
)
def test_text_and_identifiers_are_split_into_words(text: str, expected: list[str]) -> None:
    assert list(words(text)) == expected


def test_words_that_carry_no_meaning_are_left_out() -> None:
    assert terms("please show me what is in the list") == ["show", "list"]


@pytest.mark.parametrize(("one", "other"), [("issues", "issue"), ("creating", "create"), ("Searches", "search")])
def test_forms_of_one_word_are_one_term(one: str, other: str) -> None:
    assert terms(one) == terms(other)


def test_spellings_of_one_name_share_a_key() -> None:
    spellings = ["createIssue", "create_issue", "create-issue", "Create Issue", "CREATE_ISSUE"]
    assert {name_key(name) for name in spellings} == {"createissue"}
    assert name_key("create_issues") != name_key("create_issue")


@given(text=st.text())
def test_any_text_can_be_read_as_words(text: str) -> None:
    assert all(word and word == word.lower() for word in words(text) if word.isascii())


WORDS = ["alpha", "beta", "gamma", "delta", "omega", "sigma"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
DOCUMENTS = st.builds(Document, name=TEXTS, server=TEXTS, description=TEXTS, parameters=TEXTS)


def textbook_bm25(documents: Sequence[Document], query: set[str], field: str) -> list[float]:
    """BM25 with k1 = 1.2, b = 0.75 and the idf that is never negative, straight from the formula."""

    def text_of(doc: Document) -> str:
        if field == "all":
            return " ".join((doc.name, doc.name, doc.server, doc.description, doc.parameters))
        return str(getattr(doc, field))

    texts = [terms(text_of(doc)) for doc in documents]
    average = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        score = 0.0
        for term in query:
            containing = sum(term in other for other in texts)
            idf = math.log(1 + (len(texts) - containing + 0.5) / (containing + 0.5))
            frequency = text.count(term)
            if frequency:
                norm = 1 - 0.75 + 0.75 * len(text) / average
                score += idf * frequency * (1.2 + 1) / (frequency + 1.2 * norm)
        scores.append(score)
    return scores


@settings(max_examples=at_most(60), deadline=None)
@given(documents=st.lists(DOCUMENTS, min_size=1, max_size=8), query=TEXTS)
def test_scores_are_those_of_the_textbook(documents: list[Document], query: str) -> None:
    vocabulary = Vocabulary()
    index = LexicalIndex([count_terms(doc, vocabulary) for doc in documents], vocabulary)
    asked = terms(query)
    expected = np.array([textbook_bm25(documents, set(asked), field) for field in FIELDS])
    scores = index.scores(asked)
    assert scores.shape == (len(FIELDS), len(documents))
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    for field, row in zip(FIELDS, scores, strict=True):
        np.testing.assert_allclose(index.field_scores(asked, field), row, rtol=1e-5, atol=1e-6)
    # Repeating a word in the query does not change its weight.
    np.testing.assert_allclose(index.scores(asked * 2), scores)


def entries_of(
    *tools: McpTool, vocabulary: Vocabulary, encoder: Encoder | None = None, server: str = "server"
) -> list[Entry]:
    vectors = encoder.embed_tools([tool_text(server, tool) for tool in tools]) if encoder else [None] * len(tools)
    return [
        Entry(server, tool.name, count_terms(document(server, tool), vocabulary), vector)
        for tool, vector in zip(tools, vectors, strict=True)
    ]


def index_of(*tools: McpTool, vocabulary: Vocabulary | None = None, encoder: Encoder | None = None) -> SearchIndex:
    # `vocabulary or Vocabulary()` would replace an empty one, which is falsy.
    vocabulary = Vocabulary() if vocabulary is None else vocabulary
    return SearchIndex(entries_of(*tools, vocabulary=vocabulary, encoder=encoder), vocabulary, encoder)


def everything(count: int) -> Mask:
    return np.ones(count, dtype=np.bool_)


def found(index: SearchIndex, query: str, count: int, keywords: str = "", limit: int = 10) -> list[int]:
    return [hit.position for hit in index.search(query, keywords, everything(count), limit).hits]


TOOLS = (
    mcp_tool("create_issue", "Create an issue in a repository"),
    mcp_tool("list_issues", "List the issues of a repository", {"state": {"enum": ["open", "closed"]}}),
    mcp_tool("send_message", "Send a message to a channel", {"channel": {"description": "Where the herald speaks"}}),
    mcp_tool("get_weather", "Weather forecast for a city"),
)


@pytest.mark.parametrize(
    ("query", "keywords", "best"),
    [
        ("create a new issue", "", 0),
        ("which issues are closed", "", 1),
        ("herald", "", 2),
        ("", "weather", 3),
        ("tell", "channel message", 2),
    ],
)
def test_a_tool_is_found_by_its_name_description_parameters_and_choices(query: str, keywords: str, best: int) -> None:
    assert found(index_of(*TOOLS), query, len(TOOLS), keywords)[0] == best


ENCODERS = [None, ToyEncoder(), UnreachableEncoder()]


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("query", ["", "   ", "🚀", "???", "the of and", "zebra"])
def test_where_nothing_matches_nothing_is_returned(query: str, encoder: Encoder | None) -> None:
    vectors = entries_of(*TOOLS, vocabulary=(vocabulary := Vocabulary()), encoder=ToyEncoder())
    assert found(SearchIndex(vectors, vocabulary, encoder), query, len(TOOLS)) == []


def test_a_query_without_a_word_is_not_answered_even_if_an_encoder_sees_a_meaning_in_it() -> None:
    class Dreamer(ToyEncoder):
        def embed_queries(self, texts: Sequence[str]) -> Floats:
            return np.tile(np.array([1, 0, 0], dtype=np.float32), (len(texts), 1))

    index = index_of(mcp_tool("draw", "Draw an image"), encoder=Dreamer())
    assert found(index, "anything", 1) == [0]
    for query in ("", " ", "🚀", "?!"):
        assert index.search(query, "", everything(1), 5) == SearchResult((), 0.0)


def test_an_empty_index_finds_nothing() -> None:
    assert found(index_of(), "create issue", 0) == []
    assert index_of().nearest_names("create_issue", everything(0), 3) == []


def test_a_forbidden_tool_takes_no_place_from_an_allowed_one() -> None:
    index = index_of(*TOOLS)
    query = "an issue in a repository"
    best, second = found(index, query, len(TOOLS))[:2]
    allowed = everything(len(TOOLS))
    allowed[best] = False
    for limit in (1, 10):
        positions = [hit.position for hit in index.search(query, "", allowed, limit).hits]
        assert positions[0] == second
        assert best not in positions
    # It is not returned even if the query is its exact name.
    assert best not in [hit.position for hit in index.search("create_issue", "", allowed, 10).hits]


@settings(max_examples=at_most(60), deadline=None)
@given(
    tools=st.lists(st.tuples(TEXTS, TEXTS, st.booleans()), min_size=1, max_size=10),
    query=TEXTS,
    limit=st.integers(1, 12),
)
def test_the_allowed_tools_come_in_the_order_they_have_among_all(
    tools: list[tuple[str, str, bool]], query: str, limit: int
) -> None:
    index = index_of(*(mcp_tool(name or "x", description) for name, description, _ in tools))
    allowed = np.array([is_allowed for _, _, is_allowed in tools])
    among_all = index.ranking(query, everything(len(tools)), len(tools))
    ranked = index.ranking(query, allowed, limit)
    assert ranked.positions.tolist() == [at for at in among_all.positions.tolist() if allowed[at]][:limit]
    hits = index.search(query, "", allowed, limit).hits
    assert [hit.position for hit in hits] == (ranked.positions[: ranked.kept].tolist() if ranked.answered else [])
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    # A tool that has nothing in common with the query is never returned, however weak the best match is.
    assert all(hit.score > 0 for hit in hits)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_equals_come_in_their_order_every_time(limit: int) -> None:
    index = index_of(*(mcp_tool(f"tool{letter}", "the same words") for letter in "edcba"))
    for _ in range(3):
        assert found(index, "same words", 5, limit=limit) == list(range(limit))


@pytest.mark.parametrize(
    "query", ["get_page", "getPage", "get page", "call get_page for me", "use getPage on this", "`get-page`"]
)
def test_a_tool_asked_for_by_its_name_comes_first(query: str) -> None:
    wordy = mcp_tool("page_getter_getter", "get page get page get page for me use this call")
    index = index_of(wordy, mcp_tool("get_page", "Reads it"), mcp_tool("page", "get a page"))
    assert found(index, query, 3)[0] == 1


def test_a_plain_word_in_a_sentence_does_not_call_for_the_tool_of_that_name() -> None:
    index = index_of(mcp_tool("search", "Anything"), mcp_tool("search_flights", "Search cheap flights to a city"))
    assert found(index, "search cheap flights", 2)[0] == 1


LETTER, DRAWING, SUM = (
    mcp_tool("send_letter", "Send a letter"),
    mcp_tool("draw", "Draw an image"),
    mcp_tool("reckon", "Add up"),
)


def test_an_encoder_makes_a_synonym_findable() -> None:
    without, with_it = index_of(LETTER, DRAWING, SUM), index_of(LETTER, DRAWING, SUM, encoder=ToyEncoder())
    assert (without.by_words_only, with_it.by_words_only) == (True, False)
    assert found(without, "photo", 3) == []
    assert found(with_it, "photo", 3) == [1]
    assert found(with_it, "total", 3, keywords="add") == [2]
    allowed = np.array([True, False, True])
    assert with_it.search("photo", "", allowed, 3).hits == ()


def test_a_tool_that_is_not_embedded_yet_is_found_by_its_words_beside_those_that_are() -> None:
    encoder, vocabulary = ToyEncoder(), Vocabulary()
    entries = entries_of(LETTER, DRAWING, SUM, vocabulary=vocabulary, encoder=encoder)
    entries[1] = replace(entries[1], vector=None)
    index = SearchIndex(entries, vocabulary, encoder)
    assert not index.by_words_only
    assert found(index, "draw image", 3)[0] == 1
    assert found(index, "mail", 3) == [0]
    assert found(index, "photo", 3) == []


def test_a_tool_that_is_not_embedded_yet_does_not_vanish_behind_those_that_are() -> None:
    encoder, vocabulary = ToyEncoder(), Vocabulary()
    entries = entries_of(mcp_tool("paint", "Make a picture"), DRAWING, SUM, vocabulary=vocabulary, encoder=encoder)
    entries[1] = replace(entries[1], vector=None)
    assert 1 in found(SearchIndex(entries, vocabulary, encoder), "draw an image", 3)


def test_while_no_tool_is_embedded_an_index_goes_by_words() -> None:
    vocabulary = Vocabulary()
    index = SearchIndex(entries_of(LETTER, DRAWING, vocabulary=vocabulary), vocabulary, ToyEncoder())
    assert index.by_words_only
    words_alone = SearchIndex(entries_of(LETTER, DRAWING, vocabulary=vocabulary), vocabulary)
    for query in ("draw an image", "photo", "letter"):
        assert index.search(query, "", everything(2), 5) == words_alone.search(query, "", everything(2), 5)


def test_while_an_encoder_is_out_of_reach_search_goes_by_words(caplog: pytest.LogCaptureFixture) -> None:
    vocabulary = Vocabulary()
    entries = entries_of(*TOOLS, vocabulary=vocabulary, encoder=ToyEncoder())
    by_words = SearchIndex(entries, vocabulary)
    index = SearchIndex(entries, vocabulary, UnreachableEncoder())
    for query in ("create issue", "herald", "create_issue"):
        assert index.search(query, "", everything(4), 4) == by_words.search(query, "", everything(4), 4)
    assert "nobody answers" in caplog.text


FOREIGN = [
    "criar um cartão no quadro",
    "Öffne die Übersicht, bitte",
    "天気予報を教えてください",
    "ما هي حالة الطقس اليوم",
    "создай задачу",
    "🚀🎉",
    "날씨 검색",
    "e\u0301\u200b\ufeff \ud800",
    "ça " * 60,
]


@pytest.mark.parametrize("encoder", [None, ToyEncoder()])
@pytest.mark.parametrize("query", FOREIGN)
def test_a_query_in_another_language_never_breaks_and_a_name_in_it_still_wins(
    query: str, encoder: Encoder | None
) -> None:
    index = index_of(*TOOLS, encoder=encoder)
    assert len(found(index, query, 4)) <= 4
    assert found(index, f"{query} get_weather {query}", 4)[0] == 3


def test_tools_in_another_language_are_found_in_it() -> None:
    tools = (
        mcp_tool("criarCartão", "Cria um cartão no quadro"),
        mcp_tool("天气预报", "查询城市的天气"),
        mcp_tool("создать_задачу", "Создаёт новую задачу"),
    )
    index = index_of(*tools)
    for query, expected in (("um novo cartão", 0), ("城市天气", 1), ("новую задачу", 2), ("criar_cartão", 0)):
        assert found(index, query, 3)[0] == expected


def test_a_request_for_nothing_of_the_catalog_is_not_answered_and_says_how_unlikely_it_is() -> None:
    index = index_of(*TOOLS)
    refused = index.search("bake a chocolate cake tonight", "", everything(4), 5)
    answered = index.search("create an issue in the repository", "", everything(4), 5)
    assert refused.hits == ()
    assert 0 <= refused.fit < answered.fit <= 1


def test_what_fits_far_less_than_the_first_is_cut() -> None:
    assert found(index_of(*TOOLS), "weather forecast for a city", 4) == [3]


@pytest.mark.parametrize("encoder", ["none", "onnx", "static"])
def test_there_are_learned_numbers_for_every_kind_of_encoder(encoder: str) -> None:
    fusion = learned(encoder)
    for regime in (fusion.short, fusion.long):
        assert regime.weights.shape == (len(FEATURES),)
        assert regime.fit_weights.shape == (len(FIT_FEATURES),)
        assert 0 < regime.fit_threshold < 1
        assert regime.gap > 0


def test_words_that_join_the_vocabulary_later_change_nothing_for_an_index() -> None:
    vocabulary = Vocabulary()
    index = index_of(*TOOLS, vocabulary=vocabulary)
    before = index.search("create issue", "weather", everything(4), 4)
    for number in range(500):
        vocabulary.add(f"later{number}")
    index_of(mcp_tool("later", "zebra zebra zebra create"), vocabulary=vocabulary)
    assert index.search("create issue", "weather", everything(4), 4) == before
    assert index.search("zebra later7", "", everything(4), 4).hits == ()


def test_names_near_one_that_does_not_exist_are_those_that_share_its_words() -> None:
    index = index_of(*TOOLS)
    near = [hit.position for hit in index.nearest_names("issue_create_now", everything(4), 3)]
    assert near == [0, 1]
    assert index.nearest_names("issue", np.array([False, False, True, True]), 3) == []


def recursive_schema() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {"child": {"description": "inner"}}}
    schema["properties"]["child"]["properties"] = schema["properties"]
    schema["properties"]["child"]["items"] = schema
    schema["anyOf"] = [schema, schema]
    schema["$defs"] = {"self": schema}
    return schema


def wide_schema() -> dict[str, Any]:
    return {"properties": {f"p{number}": {"description": "word " * 20} for number in range(50_000)}}


def deep_schema() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"properties": {"down": schema}}
    return schema


def deep_list_schema() -> dict[str, Any]:
    """Five thousand levels without anything to read."""
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize("schema", [recursive_schema, wide_schema, deep_schema, deep_list_schema])
def test_a_hostile_schema_is_read_so_far_and_no_further(schema: Callable[[], dict[str, Any]]) -> None:
    tool = McpTool.model_construct(name="t", description="d", input_schema=schema(), title=None)
    began = time.perf_counter()
    text = document("server", tool).parameters
    assert time.perf_counter() - began < 1
    assert len(text.split()) < 25_000


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": None},
        {"properties": []},
        {"properties": {"a": None, "b": True, "c": {"description": 7, "enum": "x", "properties": "y"}}},
        {"items": 7, "anyOf": {}, "allOf": [None, 3], "$defs": [], "definitions": {"x": None}},
        {"properties": {"a": {"enum": [1, None, {"x": 1}]}}},
    ],
)
def test_a_malformed_schema_is_read_as_far_as_it_makes_sense(schema: dict[str, Any]) -> None:
    tool = McpTool.model_validate({"name": "t", "inputSchema": schema})
    assert document("server", tool).name == "t"


def test_names_descriptions_and_choices_of_nested_parameters_are_searchable() -> None:
    schema = {
        "properties": {
            "outer": {"description": "one", "properties": {"inner": {"description": "two", "enum": ["red", 3]}}},
            "rows": {"items": {"properties": {"cell": {"description": "three"}}}},
            "either": {"anyOf": [{"properties": {"left": {}}}, {"properties": {"right": {}}}]},
        },
        "$defs": {"Shared": {"properties": {"common": {"description": "four"}}}},
    }
    tool = McpTool.model_validate({"name": "t", "title": "T", "description": "D", "inputSchema": schema})
    made = document("server", tool)
    assert (made.name, made.server, made.description) == ("t", "server", "T D")
    assert made.parameters.split() == ("outer one inner two red rows cell three either left right common four".split())
