"""How well find_tool finds: the production engine on sets of tools and queries.

    python -m benchmarks.search.retrieval --data DIR [--encoder NAME] [--rankings OUT.jsonl] [--foreign FILE]

DIR holds tools.jsonl and queries.jsonl, or folders that do. Prints recall@1/5/10, hit@1/5 and nDCG@5/10 for each set,
and their means. With FASTMCP_PYTHON set, FastMCP's BM25 search is measured on the same sets.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paths import FASTMCP_SEARCH
from mcp_optimizer.catalog.tools import make_records
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.search.encoders.choose import load_encoder
from mcp_optimizer.search.engine import Encoder, SearchIndex
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import Vocabulary

DEPTH = 50
COLUMNS = ("recall@1", "recall@5", "recall@10", "hit@1", "hit@5", "ndcg@5", "ndcg@10")


@dataclass(frozen=True)
class Query:
    """A request, and the groups of tools that satisfy it: any member of a group will do."""

    id: str
    text: str
    groups: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class ToolSet:
    """Tools, and requests for them."""

    name: str
    tools: tuple[dict[str, Any], ...]
    queries: tuple[Query, ...]


def read_sets(folder: Path) -> Iterator[ToolSet]:
    folders = (
        [folder] if (folder / "tools.jsonl").exists() else sorted(path for path in folder.iterdir() if path.is_dir())
    )
    for place in folders:
        tools = tuple(_lines(place / "tools.jsonl"))
        queries = tuple(
            Query(
                str(line["id"]),
                line["query"],
                tuple(map(frozenset, line.get("groups") or [[t] for t in line["relevant"]])),
            )
            for line in _lines(place / "queries.jsonl")
        )
        yield ToolSet(place.name, tools, queries)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def build_index(tools: Sequence[dict[str, Any]], encoder: Encoder | None) -> SearchIndex:
    """The index that the gateway would build over these tools."""
    vocabulary = Vocabulary()
    entries = []
    for tool in tools:
        definition = McpTool(
            name=tool["name"], description=tool.get("description") or "", inputSchema=tool.get("inputSchema") or {}
        )
        entries += make_records(tool.get("server") or "", [Definition.of(definition)], {}, vocabulary)
    vectors = encoder.embed_tools([record.text for record in entries]) if encoder else [None] * len(entries)
    return SearchIndex(
        [Entry(r.server, r.name, r.counts, v) for r, v in zip(entries, vectors, strict=True)], vocabulary, encoder
    )


def figures(ranked: Sequence[str], groups: Sequence[frozenset[str]]) -> np.ndarray:
    """One query's figures. A group stands at the rank of its first member; nDCG counts each group once."""
    places = {tool: place for place, tool in enumerate(ranked)}
    firsts = [min((places.get(tool, 10**9) for tool in group), default=10**9) for group in groups]
    recall = {k: sum(place < k for place in firsts) / len(firsts) for k in (1, 5, 10)}
    hit = {k: float(any(place < k for place in firsts)) for k in (1, 5)}
    ndcg = {k: _dcg(firsts, k) / sum(1 / math.log2(i + 2) for i in range(min(k, len(firsts)))) for k in (5, 10)}
    return np.array([recall[1], recall[5], recall[10], hit[1], hit[5], ndcg[5], ndcg[10]])


def _dcg(places: Sequence[int], k: int) -> float:
    return sum(1 / math.log2(place + 2) for place in places if place < k)


@dataclass(frozen=True)
class Ours:
    """What the engine ranks, what of that find_tool would return, and the share of foreign requests it refuses."""

    ranked: list[list[str]]
    answered: list[list[str]]
    returned: list[list[str]]
    refused: float


def ours(tool_set: ToolSet, encoder: Encoder | None, foreign: Sequence[str]) -> Ours:
    index = build_index(tool_set.tools, encoder)
    ids = [str(tool["id"]) for tool in tool_set.tools]
    everything = np.ones(len(ids), dtype=np.bool_)
    ranked, answered, returned = [], [], []
    for query in tool_set.queries:
        ranking = index.ranking(query.text, None, DEPTH)
        ranked.append([ids[at] for at in ranking.positions])
        answered.append(ranked[-1] if ranking.answered else [])
        returned.append(answered[-1][: ranking.kept])
    refused = [not index.search(text, "", everything, 5).fits for text in foreign]
    return Ours(ranked, answered, returned, sum(refused) / len(refused) if refused else 0.0)


def fastmcp(tool_set: ToolSet, python: str) -> list[list[str]]:
    tools = [
        {
            "name": tool["name"],
            "description": tool.get("description") or "",
            "inputSchema": tool.get("inputSchema") or {},
        }
        for tool in tool_set.tools
    ]
    job = {"tools": tools, "queries": [query.text for query in tool_set.queries], "limit": DEPTH}
    command = [python, str(FASTMCP_SEARCH)]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=True)
    ids = [str(tool["id"]) for tool in tool_set.tools]
    return [[ids[at] for at in ranking] for ranking in json.loads(done.stdout)["rankings"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--rankings", type=Path, help="write the ranking of each query to this file, one per line")
    parser.add_argument("--foreign", type=Path, help="a file of requests that no tool fits, one per line")
    options = parser.parse_args()
    encoder = load_encoder(options.encoder)
    foreign = options.foreign.read_text(encoding="utf-8").split("\n") if options.foreign else []
    foreign = [line.strip() for line in foreign if line.strip() and not line.startswith("#")]
    refusals: list[tuple[float, ...]] = []
    python = os.environ.get("FASTMCP_PYTHON")
    tables: dict[str, list[np.ndarray]] = {
        label: [] for label in [options.encoder, *(["FastMCP BM25"] if python else [])]
    }
    written: list[dict[str, Any]] = []
    print(f"{'set':24}{'':14}" + "".join(f"{name:>11}" for name in COLUMNS))
    for tool_set in read_sets(options.data):
        own = ours(tool_set, encoder, foreign)
        rankings = {options.encoder: own.ranked} | ({"FastMCP BM25": fastmcp(tool_set, python)} if python else {})
        for label, ranked in rankings.items():
            rows = [figures(row, query.groups) for row, query in zip(ranked, tool_set.queries, strict=True)]
            tables[label].append(np.mean(rows, axis=0))
            _print(tool_set.name, label, tables[label][-1])
        if foreign:
            costs = [tables[options.encoder][-1][1] - _recall5(rows, tool_set) for rows in (own.answered, own.returned)]
            refusals.append((own.refused, *costs))
            print(f"{'':24}{_refusal(refusals[-1])}")
        written += [
            {"id": query.id, "ranked": row}
            for query, row in zip(tool_set.queries, rankings[options.encoder], strict=True)
        ]
    for label, found in tables.items():
        _print("mean", label, np.mean(found, axis=0))
    if refusals:
        print(f"means over the sets: {_refusal(np.mean(refusals, axis=0))}")
    if options.rankings:
        options.rankings.write_text("".join(json.dumps(line) + "\n" for line in written), encoding="utf-8")


def _recall5(rows: Sequence[Sequence[str]], tool_set: ToolSet) -> float:
    found = [figures(row, query.groups)[1] for row, query in zip(rows, tool_set.queries, strict=True)]
    return float(np.mean(found))


def _refusal(row: Sequence[float] | np.ndarray) -> str:
    return f"foreign requests refused {row[0]:.2f}; recall@5 lost by refusing {row[1]:.4f}, with the cut {row[2]:.4f}"


def _print(name: str, label: str, row: np.ndarray) -> None:
    print(f"{name:24}{label:14}" + "".join(f"{value:11.3f}" for value in row), flush=True, file=sys.stdout)


if __name__ == "__main__":
    main()
