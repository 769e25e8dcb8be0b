"""The scorer counts each group of relevant tools once."""

import pytest
from training.metrics import calibration_error, figures, query_figures
from training.sets import Query


def test_a_second_tool_of_a_met_group_counts_nothing() -> None:
    query = Query("q", "", ((1, 2), (3,)))
    recall1, recall5, *_ = query_figures([1, 2, 4, 5, 6, 3], query)
    assert (recall1, recall5) == (0.5, 0.5)


def test_ndcg_is_one_when_every_group_is_met_first() -> None:
    query = Query("q", "", ((1, 2), (3,)))
    assert figures([[2, 3, 1]], [query]).ndcg5 == pytest.approx(1.0)


def test_an_empty_ranking_scores_zero() -> None:
    assert figures([[]], [Query("q", "", ((1,),))]).recall5 == 0.0


def test_likelihoods_that_come_true_as_often_as_they_say_have_no_calibration_error() -> None:
    assert calibration_error([0.25] * 4, [True, False, False, False]) == pytest.approx(0.0)
    assert calibration_error([0.95, 0.95], [False, False]) == pytest.approx(0.95)
