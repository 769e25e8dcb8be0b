"""A minimal encoder: a few meanings, each with the words that express it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from mcp_optimizer.search.lexical import Floats
from mcp_optimizer.search.words import words

MEANINGS = ({"picture", "image", "photo"}, {"mail", "letter", "message"}, {"sum", "total", "add"})


class ToyEncoder:
    """A text's vector has a component for each meaning it mentions, or is zero. Records the tools that it embedded."""

    fusion = "onnx"

    def __init__(self, name: str = "toy", on_batch: Callable[[], None] | None = None) -> None:
        self.name = name
        self.read: list[str] = []
        self._on_batch = on_batch

    def embed_tools(self, texts: Sequence[str]) -> Floats:
        self.read += texts
        if self._on_batch is not None:
            self._on_batch()
        return self.embed_queries(texts)

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        known = [[float(bool(meaning & set(words(text)))) for meaning in MEANINGS] for text in texts]
        vectors = np.array(known, dtype=np.float32).reshape(len(texts), len(MEANINGS))
        return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6), dtype=np.float32)

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Floats]:
        return partial(self.embed_queries, texts)


class UnreachableEncoder(ToyEncoder):
    """An encoder on another machine, which is down."""

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        raise ConnectionError("nobody answers")
