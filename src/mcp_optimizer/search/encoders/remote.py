"""An encoder behind an OpenAI-compatible `/embeddings` endpoint, for those who bring their own.

Texts of tools and requests leave the machine with this one, which is why it is never chosen by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2
import numpy as np

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.search.lexical import Floats

_BATCH = 64
_TIMEOUT = 30.0


class RemoteEncoder:
    """Embeds over HTTP; `address` is the API's base with the model after `#`. A failure is a ConnectionError."""

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

    def embed_tools(self, texts: Sequence[str]) -> Floats:
        return self._embed(texts)

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        return self._embed(texts)

    def _embed(self, texts: Sequence[str]) -> Floats:
        rows: list[Any] = []
        for start in range(0, len(texts), _BATCH):
            # Half a surrogate pair, as hostile tools have it, is no JSON.
            batch = [text.encode("utf-8", "replace").decode() or " " for text in texts[start : start + _BATCH]]
            try:
                rows.extend(self._ask(batch))
            except (httpx2.HTTPError, LookupError, TypeError, ValueError) as error:
                raise ConnectionError(f"The encoder {self.name} gave no vectors: {error!r}") from error
        vectors = np.asarray(rows, dtype=np.float32).reshape(len(texts), -1 if rows else 0)
        unit: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return unit

    def _ask(self, batch: list[str]) -> list[Any]:
        response = self._client.post(self._url, json={"model": self._model, "input": batch})
        response.raise_for_status()
        data = sorted(response.json()["data"], key=lambda item: item["index"])
        if len(data) != len(batch):
            raise ValueError(f"{len(data)} vectors for {len(batch)} texts")
        return [item["embedding"] for item in data]
