"""Measures the hand-written lists through the product's own engine: `python -m training.lists --encoder NAME`.

The lists are in `data/eval`: a new user's requests, near relatives, foreign requests, requests for general-purpose
tools, ten languages. Measures the shipped encoders (`bundled`, `static`, `none`) on definitions of real servers.
`--out` writes the figures and every miss. Nothing is trained on these lists, and no number is chosen on them.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcp_optimizer.db.models import McpTool
from mcp_optimizer.search.deprecation import successors
from mcp_optimizer.search.encoders.choose import load_encoder
from mcp_optimizer.search.engine import Encoder, SearchIndex, SearchResult
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import Vocabulary, count_terms
from mcp_optimizer.search.tool_texts import document, tool_text
from training import sets

LIMIT = 8
FIVE = 5


@dataclass(frozen=True)
class Catalog:
    """The tools of some servers in one index."""

    ids: tuple[str, ...]
    index: SearchIndex

    def search(self, request: str) -> SearchResult:
        """What a client would get."""
        return self.index.search(request, "", np.ones(len(self.ids), dtype=np.bool_), LIMIT)

    def found(self, request: str) -> list[str]:
        """The ids of the tools that a client would get."""
        return [self.ids[hit.position] for hit in self.search(request).hits]


def definitions(server: str) -> list[McpTool]:
    """A server's tools as it sent them; those of two servers were written down with the lists."""
    path = sets.data_folder() / "mcp-tools" / f"{server}.json"
    path = path if path.exists() else sets.EVAL_LISTS / "tools" / f"{server}.json"
    return [McpTool.model_validate(tool) for tool in json.loads(path.read_text(encoding="utf-8"))["tools"]]


def catalog(servers: Iterable[str], encoder: Encoder | None) -> Catalog:
    """Build a catalog as the product does."""
    vocabulary = Vocabulary()
    ids: list[str] = []
    entries: list[Entry] = []
    for server in servers:
        shown = server.removeprefix("py__").split("__")[-1]
        tools = definitions(server)
        texts = [tool_text(shown, tool) for tool in tools]
        vectors: Sequence[Any] = encoder.embed_tools(texts) if encoder and texts else [None] * len(tools)
        for tool, vector in zip(tools, vectors, strict=True):
            counts = count_terms(document(shown, tool), vocabulary)
            old = successors(tool.title or "", tool.description or "", tool.annotations or {})
            ids.append(f"{server}::{tool.name}")
            entries.append(Entry(shown, tool.name, counts, vector, old))
    return Catalog(tuple(ids), SearchIndex(entries, vocabulary, encoder))


def read(name: str) -> list[dict[str, Any]]:
    """The records of one list."""
    with (sets.EVAL_LISTS / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _right(record: dict[str, Any]) -> set[str]:
    also = {f"{server}::{tool}" for server, tool in record.get("also", ())}
    return {f"{record['server']}::{record['tool']}", *also}


def measured(records: Sequence[dict[str, Any]], where: Catalog, by: str) -> dict[str, Any]:
    """The shares right first, right among the first five and refused, in total and by kind; and the misses."""
    rows: dict[str, list[tuple[bool, bool, bool]]] = defaultdict(list)
    misses = []
    for record in records:
        found, right = where.found(record["request"]), _right(record)
        row = (bool(found) and found[0] in right, bool(right & set(found[:FIVE])), not found)
        for name in ("all", record[by]):
            rows[name].append(row)
        if not row[0]:
            misses.append({"request": record["request"], "right": sorted(right), "found": found[:FIVE]})
    shares = {
        name: dict(zip(("first", "five", "refused"), np.mean(some, axis=0).round(3).tolist(), strict=True))
        | {"requests": len(some)}
        for name, some in rows.items()
    }
    return {"shares": shares, "misses": misses}


def near_relatives(encoder: Encoder | None) -> dict[str, Any]:
    """How often the right one of two near relatives ranks above the wrong one, in the server's own catalog."""
    known: dict[str, Catalog] = {}
    wrong = []
    records = read("near_relatives")
    for record in records:
        server = record["server"]
        where = known.setdefault(server, known.get(server) or catalog([server], encoder))
        ranking = where.index.ranking(record["request"], None, len(where.ids))
        order = [where.ids[at].split("::", 1)[1] for at in ranking.positions]
        if order.index(record["right"]) > order.index(record["wrong"]):
            wrong.append(record)
    return {"pairs": len(records), "right_first": round(1 - len(wrong) / len(records), 3), "misses": wrong}


def foreign(encoder: Encoder | None) -> dict[str, Any]:
    """The share refused of requests that no tool of a single-product server answers."""
    known: dict[str, Catalog] = {}
    answered = []
    records = read("foreign")
    for record in records:
        server = record["server"]
        where = known.setdefault(server, known.get(server) or catalog([server], encoder))
        if where.search(record["request"]).fits:
            answered.append({**record, "found": where.found(record["request"])[:FIVE]})
    return {"requests": len(records), "refused": round(1 - len(answered) / len(records), 3), "misses": answered}


GENERAL_ANSWERS = {
    "web_search": ("search",), "fetch": ("fetch", "navigate"), "code": ("execut", "eval", "run", "calculat"),
    "memory": ("memor", "entit", "observation", "node", "relation", "graph"),
    "sql": ("query", "sql"), "files": ("file", "director"),
}  # fmt: skip


def general(where: Catalog) -> dict[str, Any]:
    """How often a tool whose name is of the kind asked for is first or in five, and how often any is marked general."""
    rows = []
    misses = []
    for record in read("general"):
        result = where.search(record["request"])
        names = [where.ids[hit.position].split("::", 1)[1] for hit in result.hits]
        fits = [any(part in name.lower() for part in GENERAL_ANSWERS[record["kind"]]) for name in names]
        rows.append((fits[:1] == [True], any(fits[:FIVE]), not result.fits, any(hit.is_general for hit in result.hits)))
        if not rows[-1][1]:
            misses.append({**record, "found": names[:FIVE]})
    shares = np.mean(rows, axis=0).round(3).tolist()
    return dict(zip(("first", "five", "refused", "marked"), shares, strict=True)) | {"misses": misses}


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    encoder = load_encoder(options.encoder)
    servers = json.loads((sets.EVAL_LISTS / "catalog.json").read_text(encoding="utf-8"))["servers"]
    where = catalog(servers, encoder)
    found = {
        "new_user": measured(read("new_user"), where, "kind"),
        "languages": measured(read("languages"), where, "language"),
        "general": general(where),
        "near_relatives": near_relatives(encoder),
        "foreign": foreign(encoder),
    }
    if options.out:
        options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")
    for name, one in found.items():
        print(name, json.dumps(one.get("shares") or {key: value for key, value in one.items() if key != "misses"}))


if __name__ == "__main__":
    main()
