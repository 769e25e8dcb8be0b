"""Embeds texts with an OpenAI-compatible `/embeddings` endpoint, for users who have their own.

Sends the texts of tools and requests to another machine, so it is never chosen by default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import httpx2

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.search.lexical import Floats

_BATCH = 64
_TIMEOUT = 30.0
_QUERY_TIMEOUT = 5.0
"""Seconds that a search waits for the vector of its request before it uses only words."""

_PAUSE = 30.0
"""Seconds before a failed endpoint is asked again, so not every search waits for it."""


class RemoteEncoder:
    """Embeds over HTTP. `address` is the API's base URL, then `#` and the model. Failures raise ConnectionError."""

    fusion = "onnx"

    def __init__(self, address: str, key: str = "") -> None:
        base, _, model = address.partition("#")
        if not model:
            raise ConfigurationError(f"The encoder {address!r} needs a model, as in https://host/v1#model-name.")
        self.name = f"remote:{base}#{model}"
        self._model = model
        self._url = f"{base.rstrip('/')}/embeddings"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx2.Client(headers=headers, timeout=_TIMEOUT)
        self._silent_until = 0.0

    def embed_tools(self, texts: Sequence[str]) -> Floats:
        return self._embed(texts, _TIMEOUT)

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        if (seconds := self._silent_until - time.monotonic()) > 0:
            raise ConnectionError(f"The encoder {self.name} failed and will be asked again in {seconds:.0f} s")
        try:
            return self._embed(texts, _QUERY_TIMEOUT)
        except ConnectionError:
            self._silent_until = time.monotonic() + _PAUSE
            raise

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Floats]:
        return partial(self.embed_queries, texts)

    def _embed(self, texts: Sequence[str], timeout: float) -> Floats:
        rows: list[Any] = []
        for start in range(0, len(texts), _BATCH):
            # JSON cannot contain half a surrogate pair, which a hostile tool may send.
            batch = [text.encode("utf-8", "replace").decode() or " " for text in texts[start : start + _BATCH]]
            try:
                rows.extend(self._ask(batch, timeout))
            except (httpx2.HTTPError, LookupError, TypeError, ValueError) as error:
                raise ConnectionError(f"The encoder {self.name} gave no vectors: {error!r}") from error
        vectors = np.asarray(rows, dtype=np.float32).reshape(len(texts), -1 if rows else 0)
        unit: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return unit

    def _ask(self, batch: list[str], timeout: float) -> list[Any]:
        response = self._client.post(self._url, json={"model": self._model, "input": batch}, timeout=timeout)
        response.raise_for_status()
        data = sorted(response.json()["data"], key=lambda item: item["index"])
        if len(data) != len(batch):
            raise ValueError(f"{len(data)} vectors for {len(batch)} texts")
        return [item["embedding"] for item in data]
