"""How fast find_tool is, and what it takes: at 200, 1,000, 10,000, 100,000 and 200,000 tools.

python -m benchmarks.search_speed [--encoder NAME] [--sizes 200 1000 …] [--recall]

Real tools from ../shared/data (made ones without it), multiplied with varied words; their vectors are real for the
first ones and varied likewise for copies, so that 200,000 need no hours of embedding. With FASTMCP_PYTHON set,
FastMCP's BM25 search does the same work in the same run (up to 10,000 tools: then it takes seconds a query).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ground import real_tools
from mcp_optimizer.db.models import Definition, McpTool
from mcp_optimizer.ingestion.record import make_records
from mcp_optimizer.search.encoders.choose import load_encoder
from mcp_optimizer.search.engine import Encoder, Entry, SearchIndex
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.search.vectors import VectorIndex

QUERIES = (
    "create a github issue",
    "list all my calendar events for tomorrow",
    "search files by name",
    "send a message to a channel",
    "what is the weather in Lisbon",
    "query the sales database",
    "delete a branch",
    "upload a picture to the drive",
    "translate a text to German",
    "show the logs of a deployment",
)
EMBEDDED = 1_000
WORDS = (
    "alpha bravo delta echo foxtrot golf hotel india juliet kilo lima mike oscar papa quebec romeo sierra tango".split()
)


def varied(tools: list[McpTool], count: int) -> list[McpTool]:
    chance = random.Random(7)
    made = list(tools[:count])
    while len(made) < count:
        tool = tools[len(made) % len(tools)]
        extra = " ".join(chance.choices(WORDS, k=3))
        update = {"name": f"{tool.name}_{len(made)}", "description": f"{tool.description or ''} {extra}"}
        made.append(tool.model_copy(update=update))
    return made


def vectors_of(texts: list[str], encoder: Encoder, count: int) -> tuple[np.ndarray, float]:
    """Real vectors for the first tools, and near ones for the others; and how many tools a second were embedded."""
    started = time.perf_counter()
    real = encoder.embed_tools(texts[:EMBEDDED])
    rate = len(real) / (time.perf_counter() - started)
    chance = np.random.default_rng(7)
    rows = real[np.arange(count) % len(real)] + chance.normal(0, 0.02, (count, real.shape[1])).astype(np.float32)
    rows[: len(real)] = real[:count]
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), rate


def measure(tools: list[McpTool], encoder: Encoder | None) -> dict[str, Any]:
    started = time.perf_counter()
    vocabulary = Vocabulary()
    records = make_records("server", [Definition.of(tool) for tool in tools], {}, vocabulary)
    prepared = time.perf_counter() - started
    vectors: Any = [None] * len(records)
    rate = 0.0
    if encoder:
        vectors, rate = vectors_of([record.text for record in records[:EMBEDDED]], encoder, len(records))
    entries = [Entry(r.server, r.name, r.counts, v) for r, v in zip(records, vectors, strict=True)]
    started = time.perf_counter()
    index = SearchIndex(entries, vocabulary, encoder)
    built = time.perf_counter() - started
    allowed = np.ones(len(tools), dtype=np.bool_)
    seconds = []
    for query in QUERIES * 5:
        started = time.perf_counter()
        index.search(query, "", allowed, 5)
        seconds.append(time.perf_counter() - started)
    milliseconds = sorted(second * 1e3 for second in seconds)
    return {
        "p50": statistics.median(milliseconds),
        "p95": milliseconds[int(len(milliseconds) * 0.95)],
        "prepare_s": prepared,
        "build_s": built,
        "embed_per_s": rate,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def fastmcp(tools: list[McpTool], python: str) -> dict[str, Any]:
    job = {
        "tools": [{"name": t.name, "description": t.description or "", "inputSchema": t.input_schema} for t in tools],
        "queries": list(QUERIES),
        "limit": 5,
    }
    script = Path(__file__).with_name("fastmcp_search.py")
    done = subprocess.run([python, str(script)], input=json.dumps(job), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return {
        "p50": statistics.median(found["seconds"]) * 1e3,
        "build_s": found["build_seconds"],
        "memory_mb": found["memory_mb"],
    }


def recall(encoder: Encoder, count: int) -> float:
    """Recall@10 of the index against exact search, over vectors of real tools and real queries."""
    tools = varied(real_tools(10_638), count)
    vectors, _ = vectors_of([f"{tool.name} {tool.description}" for tool in tools[:EMBEDDED]], encoder, count)
    queries = encoder.embed_queries(list(QUERIES))
    near = VectorIndex(list(vectors)).cosines(queries)
    exact = queries @ vectors.T
    hits = [len(set(np.argsort(-a)[:10]) & set(np.argsort(-b)[:10])) for a, b in zip(near, exact, strict=True)]
    return sum(hits) / (10 * len(hits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1_000, 10_000, 100_000, 200_000])
    parser.add_argument("--recall", action="store_true", help="measure the index against exact search, too")
    options = parser.parse_args()
    encoder = load_encoder(options.encoder)
    python = os.environ.get("FASTMCP_PYTHON")
    real = real_tools(10_638)
    titles = f"{'tools':>9}{'p50 ms':>9}{'p95 ms':>9}{'prepare s':>11}{'build s':>9}{'embed/s':>9}{'MB':>7}"
    print(f"{titles}   FastMCP p50 ms, build s, MB")
    for size in options.sizes:
        tools = varied(real, size)
        row = measure(tools, encoder)
        line = f"{size:>9,}{row['p50']:>9.1f}{row['p95']:>9.1f}{row['prepare_s']:>11.2f}{row['build_s']:>9.2f}"
        line += f"{row['embed_per_s']:>9.0f}{row['memory_mb']:>7.0f}"
        if python and size <= 10_000:
            other = fastmcp(tools, python)
            line += f"   {other['p50']:.1f}, {other['build_s']:.2f}, {other['memory_mb']:.0f}"
        print(line, flush=True)
    if options.recall and encoder:
        print(f"recall@10 of the index at 50,000 tools: {recall(encoder, 50_000):.4f}")


if __name__ == "__main__":
    main()
