"""A transformer in ONNX: texts to unit vectors, on the CPU, without torch.

The shipped model, or a folder of the same layout that a user brings: `model.onnx` (inputs `input_ids` and
`attention_mask`; output one vector a text) and `vocab.txt`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.search.encoders.wordpiece import WordPieces
from mcp_optimizer.search.lexical import Floats

LONGEST = 256
"""Word pieces read of a text: more than it was trained on, and better for it."""

_EMPTY = "[empty]"


class OnnxEncoder:
    """Embeds with a model from a folder; one thread, so that it never takes the machine from its user."""

    fusion = "onnx"

    def __init__(self, folder: Path, label: str) -> None:
        try:
            weights = _digest(folder / "model.onnx")
            vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(f"The encoder folder {folder} needs model.onnx and vocab.txt: {error}.") from error
        # The weights name it: other weights never meet vectors of these.
        self.name = f"{label}:{weights[:12]}"
        # Memory is kept for every thread that ever embedded: two threads, and no more, keep it small. Two, because
        # a request must not wait for a batch of tools.
        self._for_tools = ThreadPoolExecutor(1, "embeds tools")
        self._for_queries = ThreadPoolExecutor(1, "embeds requests")
        try:
            self._pieces = WordPieces(vocabulary)
            self._session = _session(folder / "model.onnx")
            # Another kind of model would fail at the first request, where nobody can do anything about it.
            self.embed_queries([_EMPTY])
        except Exception as error:
            # onnxruntime's errors have no base of their own.
            raise ConfigurationError(
                f"The encoder folder {folder} holds no usable model.onnx with its vocab.txt "
                f"(inputs input_ids and attention_mask, one vector a text): {error!r}."
            ) from error

    def embed_tools(self, texts: Sequence[str]) -> Floats:
        return self._for_tools.submit(self._embed, texts).result()

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        return self._for_queries.submit(self._embed, texts).result()

    def _embed(self, texts: Sequence[str]) -> Floats:
        # One at a time: an int8 model scales its numbers over all that it is given, so that a text's vector would
        # depend on its company; and what fits the processor's cache is embedded twice as fast.
        vectors = [self._run(row) for row in self._pieces.rows([text or _EMPTY for text in texts], LONGEST)]
        return np.stack(vectors) if vectors else np.zeros((0, 0), dtype=np.float32)

    def _run(self, row: list[int]) -> Floats:
        pieces = np.array([row], dtype=np.int64)
        [found] = self._session.run(None, {"input_ids": pieces, "attention_mask": np.ones_like(pieces)})
        [vector] = np.asarray(found, dtype=np.float32)
        unit: Floats = vector / np.maximum(np.linalg.norm(vector), 1e-9)
        return unit


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _session(model: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Either would keep the most that was ever needed: a pool for all runs, a plan for each length of text.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    # By its path: given as bytes, the model is held twice.
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
