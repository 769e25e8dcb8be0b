"""Ranking: each feature measures what its name says, learned weights decide, and only allowed tools are ranked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.search.deprecation import Superseded
from mcp_optimizer.search.index_parts import Names
from mcp_optimizer.search.lexical import Floats, LexicalIndex, Vocabulary, count_terms
from mcp_optimizer.search.ranker import (
    EXACT_NAME_BONUS,
    FEATURES,
    FIT_FEATURES,
    HIT_FEATURES,
    Asked,
    Cosines,
    Fusion,
    RankAdjustments,
    Ranking,
    Regime,
    feature_matrix,
    nothing,
    rank,
    read_fusion,
)
from mcp_optimizer.search.tool_texts import Document, query_parts
from tests.trying import at_most

DOCUMENTS = (
    Document("create_issue", "github", "Open a ticket in a repository", "title body"),
    Document("list_issues", "github", "Show tickets of a repository", "state"),
    Document("search", "web", "Look for pages", "query"),
    Document("send_message", "slack", "Write to a channel", "channel text"),
)
LONG = """First list the tickets of my repository and see which are old. Then write a short message about them to the
channel of our team. Finally search the web for pages about it.""".replace("\n", " ")


def built(documents: tuple[Document, ...] | list[Document] = DOCUMENTS) -> tuple[LexicalIndex, Names]:
    vocabulary = Vocabulary()
    index = LexicalIndex([count_terms(doc, vocabulary) for doc in documents], vocabulary)
    return index, Names.of([(doc.server, doc.name) for doc in documents])


def regime(
    threshold: float = 0.5,
    gap: float = 10.0,
    fit: dict[str, float] | None = None,
    hit: dict[str, float] | None = None,
    **weights: float,
) -> Regime:
    """Weights for a test: the given features have these weights, all others zero."""
    return Regime(
        weights=np.array([weights.get(name, 0.0) for name in FEATURES], dtype=np.float32),
        fit_weights=np.array([(fit or {}).get(name, 0.0) for name in FIT_FEATURES], dtype=np.float32),
        fit_bias=0.0,
        fit_threshold=threshold,
        gap=gap,
        hit_weights=np.array([(hit or {}).get(name, 0.0) for name in HIT_FEATURES], dtype=np.float32),
        hit_bias=0.0,
    )


def both(regime: Regime) -> Fusion:
    return Fusion(regime, regime)


def cosines(*whole: float, parts: list[list[float]] | None = None) -> Cosines:
    rows = np.array(parts, dtype=np.float32) if parts else np.zeros((0, len(whole)), dtype=np.float32)
    return Cosines(np.array(whole, dtype=np.float32), rows)


def feature(name: str, query: str, given_cosines: Cosines | None = None) -> list[float]:
    matrix = feature_matrix(*built(), query, given_cosines)
    assert matrix.shape == (len(FEATURES), len(DOCUMENTS))
    return [round(float(value), 4) for value in matrix[FEATURES.index(name)]]


def test_cosines_are_taken_as_they_are() -> None:
    assert feature("cosine", "ticket", cosines(0.1, 0.2, -0.3, 0.4)) == [0.1, 0.2, -0.3, 0.4]


def test_the_part_cosine_is_the_best_of_the_parts_or_else_the_wholes() -> None:
    parts = cosines(0.1, 0.1, 0.1, 0.1, parts=[[0.9, 0.2, 0.0, 0.0], [0.3, 0.8, 0.0, -0.5]])
    assert feature("part_cosine", LONG, parts) == [0.9, 0.8, 0.0, 0.0]
    assert feature("part_cosine", "ticket", cosines(0.1, 0.2, 0.3, 0.4)) == [0.1, 0.2, 0.3, 0.4]


def test_without_cosines_theirs_are_zero() -> None:
    assert feature("cosine", LONG) == feature("part_cosine", LONG) == [0.0] * 4


@pytest.mark.parametrize(
    ("name", "query", "has_some"),
    [
        ("bm25_name", "issue", [True, True, False, False]),
        ("bm25_server", "on github", [True, True, False, False]),
        ("bm25_description", "repository", [True, True, False, False]),
        ("bm25_parameters", "channel", [False, False, False, True]),
        ("bm25_all", "github message", [True, True, False, True]),
        ("bm25_part", "github message", [True, True, False, True]),
    ],
)
def test_bm25_of_a_field_is_relative_to_its_best(name: str, query: str, has_some: list[bool]) -> None:
    values = feature(name, query)
    assert [value > 0 for value in values] == has_some
    assert max(values) == 1.0
    assert feature(name, "zebra") == [0.0] * 4


def test_the_best_part_counts_for_the_words_of_a_long_query() -> None:
    assert len(query_parts(LONG)) == 3
    whole, part = feature("bm25_all", LONG), feature("bm25_part", LONG)
    # The best tool of each part gets the full score.
    assert part[1] == part[2] == part[3] == 1.0
    assert min(whole[1:]) < 1.0


def test_a_name_is_named_as_far_as_its_words_stand_in_the_query() -> None:
    assert feature("name_named", "create an issue")[0] == 1.0
    half = feature("name_named", "an issue")[0]
    assert 0 < half < 1
    # A rare word of the name counts more than a common one.
    assert feature("name_named", "create")[0] > half
    assert feature("name_named", "searching the web") == [0.0, 0.0, 1.0, 0.0]
    assert feature("name_named", "issue issue issue")[0] == half


def test_a_server_is_named_as_far_as_its_words_stand_in_the_query() -> None:
    assert feature("server_named", "create a github issue") == [1.0, 1.0, 0.0, 0.0]


def test_a_query_is_met_as_far_as_a_tool_has_its_words() -> None:
    assert feature("query_met", "ticket title")[0] == 1.0
    # A word that no tool contains counts as much as the rarest.
    assert 0 < feature("query_met", "ticket zebra")[0] < feature("query_met", "ticket title zebra")[0] < 1
    assert feature("query_met", "ticket zebra")[0] < 0.5
    assert feature("query_met", "zebra") == feature("query_met", "") == [0.0] * 4


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("please create issue now", [1.0, 0.0, 0.0, 0.0]),
        ("createIssue", [1.0, 0.0, 0.0, 0.0]),
        ("issue create", [0.0] * 4),
        ("create an issue", [0.0] * 4),
        ("recreate issues", [0.0] * 4),
        # A name of one word is not a phrase.
        ("search", [0.0] * 4),
    ],
)
def test_a_name_of_several_words_that_stands_whole_in_the_query_is_a_phrase(query: str, expected: list[float]) -> None:
    assert feature("name_phrase", query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("create_issue", [0]),
        ("createIssue", [0]),
        ("Create Issue", [0]),
        ("creating issues", [0]),
        ("github create issue", [0]),
        ("github__create_issue", [0]),
        ("call create_issue, then send-message", [0, 3]),
        ("use `sendMessage`!", [3]),
        ("search", [2]),
        ("search the pages", []),
        ("create the issue in github", []),
        ("", []),
        ("___", []),
    ],
)
def test_a_tool_is_called_by_name_however_the_name_is_joined(query: str, expected: list[int]) -> None:
    assert Names.of([(doc.server, doc.name) for doc in DOCUMENTS]).exactly(query) == expected


def ranked(query: str, fusion: Fusion, limit: int = 4, given: Cosines | None = None, **options: Any) -> Ranking:
    return rank(*built(), query, given, fusion, limit, **options)


def test_the_score_is_the_weighted_sum_of_the_features() -> None:
    found = ranked("ticket", both(regime(cosine=2.0, query_met=0.5)), given=cosines(0.1, 0.4, 0.3, 0.2))
    assert found.positions.tolist() == [1, 0, 2, 3]
    np.testing.assert_allclose(found.scores, [1.3, 0.7, 0.6, 0.4], rtol=1e-5)


def test_who_types_a_name_gets_that_tool_whatever_else_is_said() -> None:
    fusion = both(regime(threshold=0.999, cosine=0.9))
    found = ranked("send_message", fusion, given=cosines(1.0, 0.9, 0.8, 0.0))
    assert found.positions.tolist() == [3, 0, 1, 2]
    assert found.scores[0] == pytest.approx(EXACT_NAME_BONUS)
    assert found.answered
    forbidden = ranked("send_message", fusion, given=cosines(1.0, 0.9, 0.8, 0.0), allowed=np.array([1, 1, 1, 0], bool))
    assert forbidden.positions.tolist() == [0, 1, 2]
    assert not forbidden.answered


def test_a_query_of_many_steps_has_numbers_of_its_own() -> None:
    fusion = Fusion(short=regime(cosine=1.0), long=regime(part_cosine=1.0))
    given = cosines(0.9, 0.1, 0.1, 0.1, parts=[[0.0, 0.0, 0.5, 0.0]])
    assert ranked("ticket", fusion, 1, given).positions.tolist() == [0]
    assert ranked(LONG, fusion, 1, given).positions.tolist() == [2]


def test_a_query_is_answered_if_the_first_tool_is_likely_enough_to_fit() -> None:
    given = cosines(0.2, 0.6, 0.1, 0.1)
    for threshold, is_answered in ((0.6, True), (0.7, False)):
        numbers = regime(threshold=threshold, fit={"whole_cosine": 1.0}, cosine=1.0)
        found = ranked("ticket", both(numbers), given=given)
        assert found.fit == pytest.approx(1 / (1 + np.exp(-0.6)))
        assert found.answered is is_answered


def test_what_the_fit_is_made_of() -> None:
    documents = [Document(f"tool_{number}", "s", "anything", "") for number in range(12)]
    index, names = built(documents)
    whole = np.linspace(0.9, 0.0, 12).astype(np.float32)
    given = Cosines(whole, np.array([whole * 0.5, whole * 0.25], dtype=np.float32))
    found = rank(index, names, "tool 0 zebra", given, both(regime(cosine=1.0)), 3)
    known = dict(zip(FIT_FEATURES, found.known.tolist(), strict=True))
    assert known["whole_cosine"] == pytest.approx(0.9)
    assert known["best_cosine"] == pytest.approx(0.45)
    # The lead is measured against the tenth tool, although only three were requested.
    assert known["lead"] == pytest.approx(float(whole[0] - whole[9]))
    assert 0 < known["first_met"] < 1
    assert known["first_named"] == pytest.approx(1.0)


@pytest.mark.parametrize(("gap", "kept"), [(0.05, 1), (0.15, 2), (0.35, 3), (5.0, 3)])
def test_tools_are_kept_as_far_as_they_are_within_the_gap_and_have_anything_of_the_query(gap: float, kept: int) -> None:
    found = ranked("ticket", both(regime(gap=gap, cosine=1.0)), given=cosines(0.5, 0.4, 0.2, 0.0))
    assert found.kept == kept
    assert len(found.positions) == 4


def test_one_is_kept_even_if_all_are_worth_nothing() -> None:
    found = ranked("zebra", both(regime(cosine=1.0)))
    assert found.kept == 1
    assert found.positions.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("limit", [1, 2, 4, 100])
def test_no_more_than_asked_for_are_ranked(limit: int) -> None:
    found = ranked("ticket", both(regime(cosine=1.0)), limit, cosines(0.1, 0.2, 0.3, 0.4))
    assert found.positions.tolist() == [3, 2, 1, 0][:limit]


def test_where_there_is_nothing_to_rank_nothing_is_answered() -> None:
    fusion = both(regime(threshold=0.0, cosine=1.0))
    index, names = built([])
    assert rank(index, names, "create_issue", None, fusion, 5) is nothing()
    assert feature_matrix(index, names, LONG, None).shape == (len(FEATURES), 0)
    assert ranked("create_issue", fusion, allowed=np.zeros(4, dtype=np.bool_)) is nothing()
    assert ranked("create_issue", fusion, 0) is nothing()
    assert ranked("?!", fusion) is nothing()
    assert not nothing().answered


def test_numbers_are_read_as_they_were_stored() -> None:
    fusion = Fusion(short=regime(cosine=1.0, gap=0.25), long=regime(part_cosine=0.5, fit={"lead": 3.0}))
    read = Fusion.of(fusion.stored())
    for one, other in ((fusion.short, read.short), (fusion.long, read.long)):
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.fit_weights, other.fit_weights)
        assert (one.fit_bias, one.fit_threshold, one.gap) == (other.fit_bias, other.fit_threshold, other.gap)


@pytest.mark.parametrize("key", ["features", "fit_features"])
def test_numbers_made_for_other_features_are_refused(key: str) -> None:
    stored = both(regime()).stored()
    for other in (stored[key][::-1], stored[key][:-1], [*stored[key], "luck"]):
        with pytest.raises(ValueError, match="made for other features"):
            Fusion.of({**stored, key: other})


def test_numbers_of_an_encoder_that_nobody_trained_are_missed() -> None:
    with pytest.raises(KeyError):
        read_fusion("{}", "none")


WORDS = ["alpha", "beta", "gamma", "delta", "omega", "a", "Ünï", "天气预报", "create_issue", "getPage", "-", "🚀"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
TOOLS = st.builds(Document, name=TEXTS, server=TEXTS, description=TEXTS, parameters=TEXTS)
NUMBERS = st.floats(-1, 1, width=32)


@st.composite
def rankings(draw: st.DrawFn) -> tuple[list[Document], Floats, str, Any, Regime, int]:
    documents = draw(st.lists(TOOLS, max_size=30))
    size = len(documents)
    whole = np.array(draw(st.lists(NUMBERS, min_size=size, max_size=size)), dtype=np.float32)
    allowed = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=np.bool_)
    weights = np.array(draw(st.lists(NUMBERS, min_size=len(FEATURES), max_size=len(FEATURES))), dtype=np.float32)
    numbers = replace(regime(gap=draw(st.floats(0.01, 2))), weights=weights)
    query = draw(st.one_of(TEXTS, st.text(max_size=30), st.lists(st.sampled_from(WORDS), min_size=25).map(". ".join)))
    return documents, whole, query, allowed, numbers, draw(st.integers(1, 40))


@pytest.mark.slow
@settings(max_examples=at_most(80), deadline=None)
@given(case=rankings())
def test_only_allowed_tools_are_ranked_best_first_and_the_same_every_time(
    case: tuple[list[Document], Floats, str, Any, Regime, int],
) -> None:
    documents, whole, query, allowed, numbers, limit = case
    index, names = built(documents)
    given = Cosines(whole, np.zeros((0, len(whole)), dtype=np.float32))
    found = rank(index, names, query, given, both(numbers), limit, allowed)
    positions = found.positions.tolist()
    if found is not nothing():
        assert len(positions) == min(limit, int(allowed.sum()))
        assert 1 <= found.kept <= len(positions)
    assert len(set(positions)) == len(positions)
    assert all(allowed[at] for at in positions)
    # Tools with equal scores keep their order.
    order = [(-score, at) for score, at in zip(found.scores.tolist(), positions, strict=True)]
    assert order == sorted(order)
    assert 0 <= found.fit <= 1
    # Several rankings share what is computed once for the request, so none may change it.
    asked = Asked.of(index, names, query).with_cosines(given)
    _, again = (rank(index, names, query, given, both(numbers), limit, allowed, asked=asked) for _ in range(2))
    assert (again.positions.tolist(), again.scores.tolist(), again.fit) == (positions, found.scores.tolist(), found.fit)
    # No tool outside the limit is better than one inside it.
    everyone = rank(index, names, query, given, both(numbers), len(documents) + 1, allowed)
    assert everyone.positions.tolist()[:limit] == positions


@pytest.mark.parametrize("spelling", ["github", "GitHub", "Github"])
def test_a_server_is_meant_however_its_name_is_spelt(spelling: str) -> None:
    vocabulary = Vocabulary()
    documents = [Document("create_issue", server, "Open a new issue", "") for server in ("gitlab", "github")]
    index = LexicalIndex([count_terms(document, vocabulary) for document in documents], vocabulary)
    matrix = feature_matrix(index, Names.of([("gitlab", "a"), ("github", "b")]), f"create a {spelling} issue", None)
    assert list(matrix[FEATURES.index("server_named")]) == [0.0, 1.0]


FAMILY = (
    *(Document(name, "git", "Shows changes", "") for name in ("git_diff_staged", "git_diff_unstaged")),
    *(Document(name, "files", "On disk", "") for name in ("delete_file", "write_file")),
)


def named(feature: str, query: str) -> list[float]:
    index, names = built(FAMILY)
    return [float(value) for value in feature_matrix(index, names, query, None)[FEATURES.index(feature)]]


def test_what_a_request_negates_speaks_for_the_tool_that_says_so_and_against_the_other() -> None:
    assert named("negation", "what did I change but not stage yet") == [-1.0, 1.0, 0.0, 0.0]
    assert named("negation", "what did I stage") == [0.0] * 4


def test_a_tool_that_does_what_is_asked_is_told_from_one_that_does_something_else() -> None:
    assert named("same_action", "erase the report")[2:] == [1.0, 0.0]
    assert named("other_action", "erase the report")[2:] == [0.0, -1.0]
    # A negated action is not a requested one.
    assert named("same_action", "save it, but do not delete it")[2:] == [0.0, 1.0]


def test_how_likely_a_hit_is_falls_with_its_rank_and_stays_between_0_and_1() -> None:
    numbers = regime(hit={"hit_cosine": 9.0, "hit_behind": -50.0}, cosine=1.0)
    found = ranked("ticket", both(numbers), given=cosines(0.1, 0.4, 0.3, 0.2))
    assert np.all(np.diff(found.likelihoods) <= 0)
    assert np.all((found.likelihoods >= 0) & (found.likelihoods <= 1))
    assert found.likelihoods[0] == pytest.approx(1 / (1 + np.exp(-9.0 * 0.4)))


def test_a_tool_that_is_called_by_its_name_is_almost_surely_meant() -> None:
    numbers = regime(hit={"hit_cosine": -9.0}, cosine=1.0)
    found = ranked("send_message", both(numbers), given=cosines(0.9, 0.8, 0.7, 0.6))
    assert (found.positions[0], found.likelihoods[0]) == (3, pytest.approx(0.99))


def test_a_deprecated_tool_stands_below_what_it_points_to_and_below_its_equals_if_it_points_nowhere() -> None:
    fusion = both(regime(cosine=1.0))
    given = cosines(0.9, 0.1, 0.5, 0.4)
    tools = [("s", "old", ("new",)), ("s", "new", None), ("s", "older", ()), ("s", "other", None)]
    found = ranked("ticket", fusion, given=given, beside=RankAdjustments(Superseded.of(tools)))
    assert found.positions.tolist() == [1, 0, 2, 3]
    assert found.scores[2] == pytest.approx(0.4)
    # If the tool that replaces it is not allowed, the deprecated tool comes first.
    hidden = np.array([1, 0, 1, 1], dtype=np.bool_)
    without = ranked("ticket", fusion, given=given, allowed=hidden, beside=RankAdjustments(Superseded.of(tools)))
    assert without.positions.tolist() == [0, 2, 3]


def test_a_prior_moves_equals_apart() -> None:
    prior = np.array([0.0, 0.0, 0.0, 0.02], dtype=np.float32)
    found = ranked(
        "zebra", both(regime(cosine=1.0)), given=cosines(0.5, 0.2, 0.2, 0.49), beside=RankAdjustments(prior=prior)
    )
    assert found.positions.tolist()[:2] == [3, 0]
