"""Loads the encoder that the settings name. Called in a thread after the start, because loading takes time."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path

from mcp_optimizer.search.engine import Encoder

logger = logging.getLogger(__name__)

MODEL = Path(__file__).parents[1] / "model"


def load_encoder(choice: str, key: str = "", *, saves_memory: bool = False) -> Encoder | None:
    """`choice` is `bundled`, `static`, `none`, a folder with model.onnx and vocab.txt, or https://host/v1#model.

    With `saves_memory`, this process loads the bundled model only at the first search; another process embeds tools.
    """
    if choice == "none":
        return None
    if choice == "static":
        return _static()
    if choice.startswith(("http://", "https://")):
        from mcp_optimizer.search.encoders.remote import RemoteEncoder

        return RemoteEncoder(choice, key)
    if find_spec("onnxruntime") is None:
        logger.warning("onnxruntime cannot be loaded (it is not installed); the static encoder is used instead.")
        return _static()
    from mcp_optimizer.search.encoders.onnx import OnnxEncoder

    if choice == "bundled":
        bundled = OnnxEncoder(MODEL, "bundled", is_known=True)
        if not saves_memory:
            return bundled
        from mcp_optimizer.search.encoders.onnx import DeferredEncoder

        return DeferredEncoder(bundled, MODEL)
    return OnnxEncoder(Path(choice).expanduser(), "custom")


def _static() -> Encoder:
    from mcp_optimizer.search.encoders.static import StaticEncoder

    return StaticEncoder.load(MODEL / "static.npz")
