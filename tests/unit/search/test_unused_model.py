"""The bundled model takes memory only while it is used."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from mcp_optimizer.search.encoders.choose import MODEL, load_encoder
from mcp_optimizer.search.encoders.onnx import OnnxEncoder
from tests.waiting import until


async def test_a_model_that_nobody_uses_is_given_back_and_loaded_again_when_needed() -> None:
    encoder = OnnxEncoder(MODEL, "bundled", unused=0.05, is_known=True)
    assert not encoder.is_loaded
    first = encoder.embed_tools(["create an issue"])
    await until(lambda: not encoder.is_loaded, "the model to be given back")
    assert np.array_equal(encoder.embed_tools(["create an issue"]), first)


@pytest.mark.slow
async def test_a_model_that_somebody_searched_with_stays_for_the_next_search() -> None:
    encoder = OnnxEncoder(MODEL, "bundled", unused=0.05, is_known=True)
    other = OnnxEncoder(MODEL, "bundled", unused=0.05, is_known=True)
    encoder.embed_queries(["create an issue"])
    other.embed_tools(["create an issue"])
    await until(lambda: not other.is_loaded, "the other model to be given back")
    assert encoder.is_loaded


def test_the_bundled_encoder_has_its_name_before_its_model_is_loaded() -> None:
    encoder = load_encoder("bundled")
    assert isinstance(encoder, OnnxEncoder)
    assert encoder.name.startswith("bundled:")
    assert not encoder.is_loaded


def test_a_library_that_cannot_be_loaded_is_an_encoder_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder("bundled")
    assert encoder is not None
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(OSError, match="onnxruntime cannot be loaded"):
        encoder.embed_tools(["create an issue"])
