"""A model.onnx in this process: loads it, and runs it on one text at a time.

Called by the encoder, and by the process that embeds tools, which loads nothing else: so this imports as little as it
can.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.lazy_numpy import np

if TYPE_CHECKING:
    from mcp_optimizer.search.lexical import Floats

LONGEST = 256
"""Maximum word pieces read per text. More than in training, which gives better results."""

EMPTY = "[empty]"
"""What is read in place of a text without anything in it."""


def load_session(model: Path) -> Any:
    """Takes 19 MB for the library, and 34 for the bundled model."""
    # Otherwise it writes a device id and events to the home folder, and sends them to its maker. Before the import: the
    # switch that it offers afterwards leaves two files behind.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        # As with an encoder that cannot be reached, tools are then found by their words.
        raise OSError(f"onnxruntime cannot be loaded: {error}") from error

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Both would keep the peak memory: the arena as a pool for all runs, the pattern as a plan for each text length.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    # Loaded by path: passed as bytes, the model would be in memory twice.
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(session: Any, row: list[int]) -> Floats:
    """The unit vector of a text, given as the numbers of its word pieces."""
    pieces = np.array([row], dtype=np.int64)
    [found] = session.run(None, {"input_ids": pieces, "attention_mask": np.ones_like(pieces)})
    [vector] = np.asarray(found, dtype=np.float32)
    unit: Floats = vector / np.maximum(np.linalg.norm(vector), 1e-9)
    return unit
