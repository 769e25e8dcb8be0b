"""Turns texts into unit vectors with an ONNX transformer, on the CPU and without torch.

The model is the bundled one, or a user's own folder with the same layout: `model.onnx` (inputs `input_ids` and
`attention_mask`; output one vector per text) and `vocab.txt`. A serving gateway loads the model and its library (53 MB)
at the first search; until then another process embeds tools.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.memory import give_back
from mcp_optimizer.search.encoders.onnx_model import EMPTY, LONGEST, WordPieces, load_session, run
from mcp_optimizer.search.encoders.tool_process import ToolProcess
from mcp_optimizer.search.lexical import Floats, Vector

_HANDOVER = 0.05
"""Maximum seconds to wait for the other thread to begin: it may still be embedding another request."""


_UNUSED = 10.0
"""Seconds without use after which the model is freed before the first search; loading takes a quarter of a second."""

_UNUSED_SINCE_A_SEARCH = 900.0
"""Seconds without use after which the model is freed once there was a search."""


class OnnxEncoder:
    """Embeds with the model in a folder. Each run uses one thread, so it never takes over the user's machine.

    The model takes 50 MB. It is loaded on first use and freed when it has not been used for a while.
    """

    fusion = "onnx"

    def __init__(self, folder: Path, label: str, *, unused: float = _UNUSED, is_known: bool = False) -> None:
        """`is_known`: the model is known to be suitable, so it is not tested."""
        try:
            weights = _digest(folder / "model.onnx")
            if not is_known:
                (folder / "vocab.txt").read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(f"The encoder folder {folder} needs model.onnx and vocab.txt: {error}.") from error
        # The name contains a digest of the weights, so vectors of different weights are never mixed.
        self.name = f"{label}:{weights[:12]}"
        # Every thread that has embedded holds memory, so there are only two; not one, because a request must not wait
        # for a batch of tools.
        self._for_tools = ThreadPoolExecutor(1, "embeds tools")
        self._for_queries = ThreadPoolExecutor(1, "embeds requests")
        self._model = folder / "model.onnx"
        self._using = threading.Lock()
        self._session: Any = None
        self._used, self._unused, self._is_watched = 0.0, unused, False
        self._vocabulary = folder / "vocab.txt"
        self._pieces: WordPieces | None = None
        try:
            # An unsuitable model should fail at loading, not at the first request, where the user cannot fix it.
            if not is_known:
                self._embed([EMPTY])
        except Exception as error:
            # onnxruntime's exceptions have no common base class.
            raise ConfigurationError(
                f"The encoder folder {folder} has no usable model.onnx with its vocab.txt "
                f"(inputs input_ids and attention_mask, one vector per text): {error!r}."
            ) from error

    @property
    def is_loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._session is not None

    def embed_tools(self, texts: Sequence[str]) -> Floats:
        return self._for_tools.submit(self._embed, texts).result()

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        return self.begin_queries(texts)()

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Floats]:
        # Wait until the other thread is about to run the model: a caller that computes on would hold the interpreter
        # and keep that thread from beginning.
        self._unused = max(self._unused, _UNUSED_SINCE_A_SEARCH)
        is_running = threading.Event()
        begun = self._for_queries.submit(self._embed, texts, is_running)
        is_running.wait(_HANDOVER)
        return begun.result

    def _embed(self, texts: Sequence[str], is_running: threading.Event | None = None) -> Floats:
        # One text at a time: an int8 model scales its numbers over the whole batch, so a text's vector would depend on
        # the other texts. It is also twice as fast, because one text fits the processor's cache.
        if (pieces := self._pieces) is None:
            pieces = self._pieces = WordPieces(self._vocabulary.read_text(encoding="utf-8").splitlines())
        rows = pieces.rows([text or EMPTY for text in texts], LONGEST)
        if is_running is not None:
            is_running.set()
        session = self._loaded()
        vectors = [run(session, row) for row in rows]
        self._used = time.monotonic()
        return np.stack(vectors) if vectors else np.zeros((0, 0), dtype=np.float32)

    def _loaded(self) -> Any:
        with self._using:
            self._used = time.monotonic()
            if self._session is None:
                self._session = load_session(self._model)
            if not self._is_watched:
                self._is_watched = True
                self._look_later(self._unused)
            return self._session

    def _look_later(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._give_back_if_unused)
        timer.daemon = True
        timer.start()

    def _give_back_if_unused(self) -> None:
        with self._using:
            left = self._used + self._unused - time.monotonic()
            if left > 0:
                self._look_later(left)
                return
            self._session, self._pieces, self._is_watched = None, None, False
        give_back()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


logger = logging.getLogger(__name__)


class DeferredEncoder:
    """Makes the same vectors as the given encoder, under the same name, but embeds tools in another process until the
    model is loaded in this one.
    """

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
        """Whether this process has the model in memory."""
        return self._encoder.is_loaded

    def embed_tools(self, texts: Sequence[str]) -> Iterable[Vector]:
        if not self._has_failed and not self.is_loaded:
            try:
                return self._process.embed(texts)
            except OSError as error:
                # Not tried again, because every batch would wait for the failure.
                self._has_failed = True
                logger.info("Tools are embedded by the gateway itself: %s.", error)
        return self._encoder.embed_tools(texts)

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        return self._encoder.embed_queries(texts)

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Floats]:
        return self._encoder.begin_queries(texts)
