"""How fast find_tool is, and how much memory it takes, at 200 to 200,000 tools.

    python -m benchmarks.search.speed [--encoder NAME] [--sizes 200 1000 ...] [--recall]

The tools are real ones from ../shared/data (made-up ones without it), and copies of them with other words. The first
1,000 have real vectors and the rest variations of these, so that 200,000 tools need no hours of embedding. Each size is
measured in a process of its own, which holds what a gateway holds. With FASTMCP_PYTHON set, FastMCP's BM25 search does
the same work in the same run, up to 10,000 tools: with more, it takes seconds per query.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.paths import FASTMCP_SEARCH
from benchmarks.processes import resident_mb
from benchmarks.tools import QUERIES, varied
from mcp_optimizer.catalog.tools import make_records
from mcp_optimizer.runtime.memory import give_back
from mcp_optimizer.search.encoders.choose import load_encoder
from mcp_optimizer.search.engine import Encoder, SearchIndex
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.search.vectors import VectorIndex, numbers

EMBEDDED = 1_000


def vectors_of(texts: list[str], encoder: Encoder, count: int) -> tuple[np.ndarray, float]:
    """Real vectors for the first tools and similar ones for the others; and the number of tools embedded per second."""
    started = time.perf_counter()
    real = np.stack([numbers(vector) for vector in encoder.embed_tools(texts[:EMBEDDED])])
    rate = len(real) / (time.perf_counter() - started)
    chance = np.random.default_rng(7)
    rows = real[np.arange(count) % len(real)] + chance.normal(0, 0.02, (count, real.shape[1])).astype(np.float32)
    rows[: len(real)] = real[:count]
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), rate


def measure(size: int, encoder: Encoder | None) -> dict[str, Any]:
    definitions = list(varied(size))
    started = time.perf_counter()
    vocabulary = Vocabulary()
    records = make_records("server", definitions, {}, vocabulary)
    prepared = time.perf_counter() - started
    vectors: Any = [None] * len(records)
    rate = 0.0
    if encoder:
        vectors, rate = vectors_of([record.text for record in records[:EMBEDDED]], encoder, len(records))
    entries = [Entry(r.server, r.name, r.counts, v) for r, v in zip(records, vectors, strict=True)]
    started = time.perf_counter()
    index = SearchIndex(entries, vocabulary, encoder)
    built = time.perf_counter() - started
    allowed = np.ones(size, dtype=np.bool_)
    seconds = []
    for query in QUERIES * 5:
        started = time.perf_counter()
        index.search(query, "", allowed, 5)
        seconds.append(time.perf_counter() - started)
    del entries, vectors
    give_back()
    milliseconds = sorted(second * 1e3 for second in seconds)
    return {
        "p50": statistics.median(milliseconds),
        "p95": milliseconds[int(len(milliseconds) * 0.95)],
        "prepare_s": prepared,
        "build_s": built,
        "embed_per_s": rate,
        "memory_mb": resident_mb(),
    }


def measure_alone(size: int, encoder: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.search.speed", "--encoder", encoder, "--alone", str(size)]
    row: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return row


def fastmcp(size: int, python: str) -> dict[str, Any]:
    tools = (json.loads(definition.wire_json) for definition in varied(size))
    job = {
        "tools": [{key: tool.get(key) or "" for key in ("name", "description", "inputSchema")} for tool in tools],
        "queries": list(QUERIES),
        "limit": 5,
    }
    command = [python, str(FASTMCP_SEARCH)]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return {
        "p50": statistics.median(found["seconds"]) * 1e3,
        "build_s": found["build_seconds"],
        "memory_mb": found["memory_mb"],
    }


def recall(encoder: Encoder, count: int) -> float:
    """Recall@10 of the index, measured against exact search, with vectors of real tools and real queries."""
    tools = [definition.parsed() for definition in islice(varied(count), EMBEDDED)]
    vectors, _ = vectors_of([f"{tool.name} {tool.description}" for tool in tools], encoder, count)
    queries = encoder.embed_queries(list(QUERIES))
    near = VectorIndex(list(vectors)).cosines(queries)
    exact = queries @ vectors.T
    hits = [len(set(np.argsort(-a)[:10]) & set(np.argsort(-b)[:10])) for a, b in zip(near, exact, strict=True)]
    return sum(hits) / (10 * len(hits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1_000, 10_000, 100_000, 200_000])
    parser.add_argument("--recall", action="store_true", help="also compare the index with exact search")
    parser.add_argument("--alone", type=int, help="measure only this size, in this process, and print JSON")
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(measure(options.alone, load_encoder(options.encoder))))
        return
    python = os.environ.get("FASTMCP_PYTHON")
    titles = f"{'tools':>9}{'p50 ms':>9}{'p95 ms':>9}{'prepare s':>11}{'build s':>9}{'embed/s':>9}{'MB':>7}"
    print(f"{titles}   FastMCP p50 ms, build s, MB")
    for size in options.sizes:
        row = measure_alone(size, options.encoder)
        line = f"{size:>9,}{row['p50']:>9.1f}{row['p95']:>9.1f}{row['prepare_s']:>11.2f}{row['build_s']:>9.2f}"
        line += f"{row['embed_per_s']:>9.0f}{row['memory_mb']:>7.0f}"
        if python and size <= 10_000:
            other = fastmcp(size, python)
            line += f"   {other['p50']:.1f}, {other['build_s']:.2f}, {other['memory_mb']:.0f}"
        print(line, flush=True)
    if options.recall and (encoder := load_encoder(options.encoder)):
        print(f"recall@10 of the index at 50,000 tools: {recall(encoder, 50_000):.4f}")


if __name__ == "__main__":
    main()
