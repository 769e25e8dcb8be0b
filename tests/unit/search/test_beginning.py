"""A request can be embedded while something else is computed."""

from __future__ import annotations

import numpy as np
import pytest

from mcp_optimizer.search.encoders.choose import load_encoder


@pytest.mark.parametrize("name", ["bundled", "static"])
def test_what_was_begun_is_what_embedding_at_once_gives(name: str) -> None:
    encoder = load_encoder(name)
    assert encoder is not None
    texts = ["create an issue", "delete a branch"]
    begun = [encoder.begin_queries([text]) for text in texts]
    assert np.array_equal(np.concatenate([vectors() for vectors in begun]), encoder.embed_queries(texts))
