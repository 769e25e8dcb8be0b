"""Simulated servers and a simulated encoder for measurements of size: no process, no network, no model."""

from __future__ import annotations

import asyncio
import json
import os
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 384
VERSION = "2026-07-28"


def write_listings(path: Path, servers: int, each: int) -> None:
    """The results of tools/list of all servers, one after the other, and where each begins."""
    from benchmarks.tools import varied

    starts = [0]
    tools = varied(servers * each)
    with path.open("wb") as file:
        for _ in range(servers):
            page = ",".join(next(tools).wire_json for _ in range(each))
            starts.append(starts[-1] + file.write(f'{{"tools":[{page}]}}'.encode("utf-8", "surrogatepass")))
    path.with_suffix(".json").write_text(json.dumps(starts))


class Listings:
    """Reads them again."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._starts = json.loads(path.with_suffix(".json").read_text())

    def __len__(self) -> int:
        return len(self._starts) - 1

    def read(self, number: int) -> Any:
        import pydantic_core

        start, end = self._starts[number : number + 2]
        return pydantic_core.from_json(os.pread(self._file, end - start, start))


@dataclass
class SimulatedServer:
    """Answers as a modern server does, a turn of the event loop later."""

    peer: Any
    listing: Callable[[], Any]

    async def deliver(self, message: Mapping[str, Any], _headers: Mapping[str, str]) -> None:
        if "id" in message:
            asyncio.get_running_loop().call_soon(self._answer, message["id"], message["method"])

    def _answer(self, number: int, method: str) -> None:
        result: Any = {"content": [{"type": "text", "text": "done"}]}
        if method == "server/discover":
            result = {"supportedVersions": [VERSION], "capabilities": {"tools": {}}}
        elif method == "tools/list":
            result = self.listing()
        self.peer.receive({"jsonrpc": "2.0", "id": number, "result": result})


class Simulated:
    """The servers, and their connections."""

    def __init__(self, listings: Listings) -> None:
        self._listings = listings
        self.peers: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._listings)

    def connecting(self, _authorize: Any = None) -> Any:
        return self.connect

    @asynccontextmanager
    async def connect(self, spec: Any, _transport: Any, peer: Any, _diagnostics: Any) -> AsyncIterator[None]:
        number = int(spec.name.rpartition("-")[2])
        peer.bind(SimulatedServer(peer, partial(self._listings.read, number)))
        self.peers[spec.name] = peer
        yield


class FakeEncoder:
    """Random vectors of the bundled encoder's width; the same for the same text."""

    name = "fake"
    fusion = "onnx"

    def embed_tools(self, texts: Sequence[str]) -> Any:
        rows = [np.random.default_rng(zlib.crc32(text.encode("utf-8", "replace"))) for text in texts]
        vectors = np.array([row.standard_normal(WIDTH, dtype=np.float32) for row in rows])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    embed_queries = embed_tools

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Any]:
        return partial(self.embed_queries, texts)
