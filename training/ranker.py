"""The product's ranker for a set of tools, as `fusion.py`, `cut.py` and `evaluate.py` call it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_optimizer.search import ranker
from mcp_optimizer.search.index_parts import Names
from mcp_optimizer.search.lexical import Floats, LexicalIndex, Vocabulary, count_terms
from mcp_optimizer.search.ranker import (
    FEATURES,
    FIT_FEATURES,
    HIT_FEATURES,
    Cosines,
    Fusion,
    Ranking,
    Regime,
    read_fusion,
)
from mcp_optimizer.search.tool_texts import Document
from training.features import ToolWords

__all__ = [
    "FEATURES",
    "FIT_FEATURES",
    "HIT_FEATURES",
    "Catalog",
    "Cosines",
    "Fusion",
    "Ranking",
    "Regime",
    "feature_matrix",
    "rank",
    "read_fusion",
]


@dataclass(frozen=True, slots=True)
class Catalog:
    """A set of tools, indexed as in the product."""

    index: LexicalIndex
    names: Names

    @classmethod
    def build(cls, tools: Sequence[ToolWords]) -> Catalog:
        """Index the tools; their positions stay as given."""
        vocabulary = Vocabulary()
        documents = [
            Document(name=tool.name, server=tool.server, description=tool.description, parameters=tool.parameter_text)
            for tool in tools
        ]
        counts = [count_terms(document, vocabulary) for document in documents]
        return cls(LexicalIndex(counts, vocabulary), Names.of([(tool.server, tool.name) for tool in tools]))


def feature_matrix(catalog: Catalog, query: str, cosines: Cosines | None) -> Floats:
    """Every tool's features (tools x features), in the order of `FEATURES`."""
    return ranker.feature_matrix(catalog.index, catalog.names, query, cosines).T


def rank(catalog: Catalog, query: str, cosines: Cosines | None, fusion: Fusion, limit: int) -> Ranking:
    """The first `limit` tools of the catalog for the query."""
    return ranker.rank(catalog.index, catalog.names, query, cosines, fusion, limit)
