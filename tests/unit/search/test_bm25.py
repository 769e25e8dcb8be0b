"""Our BM25 gives the same scores as a library: make_bm25_golden.py wrote bm25_golden.json with bm25s."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcp_optimizer.search import lexical
from mcp_optimizer.search.lexical import FIELDS, LexicalIndex, Vocabulary, count_terms
from mcp_optimizer.search.tool_texts import Document

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("bm25_golden.json").read_text(encoding="utf-8"))


@pytest.fixture(params=["at once", "in many steps"])
def index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LexicalIndex:
    if request.param == "in many steps":
        # As with many tools.
        monkeypatch.setattr(lexical, "_TOGETHER", 3)
    vocabulary = Vocabulary()
    documents = [Document(**text) for text in GOLDEN["documents"]]
    return LexicalIndex([count_terms(document, vocabulary) for document in documents], vocabulary)


@pytest.mark.parametrize("field", FIELDS)
def test_scores_in_each_field_are_those_of_a_library(index: LexicalIndex, field: str) -> None:
    ours = np.array([index.field_scores(query, field) for query in GOLDEN["queries"]])
    theirs = np.array(GOLDEN["scores"][field])
    assert np.count_nonzero(theirs) > 30
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
