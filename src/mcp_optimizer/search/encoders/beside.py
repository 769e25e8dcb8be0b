"""The bundled encoder of a gateway that serves: tools are embedded in another process until somebody searches.

The model and its library take 53 MB, and embedding is done once; a search needs them here, and then they stay. Called
by `choose`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mcp_optimizer.search.encoders.onnx import OnnxEncoder
from mcp_optimizer.search.encoders.tool_process import ToolProcess
from mcp_optimizer.search.lexical import Floats, Vector

logger = logging.getLogger(__name__)


class EncoderBeside:
    """Makes the same vectors as the encoder that it is given, under the same name."""

    def __init__(self, encoder: OnnxEncoder, folder: Path, process: ToolProcess | None = None) -> None:
        self._encoder = encoder
        self._process = process or ToolProcess(folder)
        self._has_failed = False

    @property
    def name(self) -> str:
        return self._encoder.name

    @property
    def fusion(self) -> str:
        return self._encoder.fusion

    @property
    def is_loaded(self) -> bool:
        """Whether the model is in this process's memory."""
        return self._encoder.is_loaded

    def embed_tools(self, texts: Sequence[str]) -> Iterable[Vector]:
        if not self._has_failed and not self.is_loaded:
            try:
                return self._process.embed(texts)
            except OSError as error:
                # Not tried again: what failed once would make each batch wait.
                self._has_failed = True
                logger.info("Tools are embedded by the gateway itself: %s.", error)
        return self._encoder.embed_tools(texts)

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        return self._encoder.embed_queries(texts)

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Floats]:
        return self._encoder.begin_queries(texts)
