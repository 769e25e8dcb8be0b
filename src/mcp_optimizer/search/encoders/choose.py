"""Loads the encoder that the settings name. Loading takes a moment, so it is done in a thread, after the start."""

from __future__ import annotations

import logging
from pathlib import Path

from mcp_optimizer.search.engine import Encoder

logger = logging.getLogger(__name__)

MODEL = Path(__file__).parents[1] / "model"


def load_encoder(choice: str, key: str = "") -> Encoder | None:
    """`choice` is `bundled`, `static`, `none`, a folder with model.onnx and vocab.txt, or https://host/v1#model."""
    if choice == "none":
        return None
    if choice == "static":
        return _static()
    if choice.startswith(("http://", "https://")):
        from mcp_optimizer.search.encoders.remote import RemoteEncoder

        return RemoteEncoder(choice, key)
    try:
        from mcp_optimizer.search.encoders.onnx import OnnxEncoder
    except ImportError as error:
        logger.warning("onnxruntime cannot be loaded (%s); the static encoder is used instead.", error)
        return _static()
    return OnnxEncoder(MODEL, "bundled") if choice == "bundled" else OnnxEncoder(Path(choice).expanduser(), "custom")


def _static() -> Encoder:
    from mcp_optimizer.search.encoders.static import StaticEncoder

    return StaticEncoder.load(MODEL / "static.npz")
