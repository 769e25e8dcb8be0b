"""Writes bm25_golden.json: a library's BM25 scores for the kanban tools. Needs `pip install bm25s==0.3.16`.

Run once by hand: `python -m tests.unit.search.make_bm25_golden`. The test only reads the file. It contains only words
that our stemming leaves unchanged, so the scores do not depend on it.
"""

from __future__ import annotations

import json
import random
from importlib import import_module
from pathlib import Path
from typing import Any

from mcp_optimizer.search.lexical import FIELDS
from mcp_optimizer.search.words import terms
from mcp_optimizer_demo.kanban.server import KANBAN_TOOLS

GOLDEN = Path(__file__).with_name("bm25_golden.json")
NAME_REPEATS = 2
K1, B = 1.2, 0.75


def plain(text: str) -> str:
    return " ".join(term for term in terms(text) if terms(term) == [term])


def documents() -> list[dict[str, str]]:
    return [
        {
            "name": plain(tool.name.replace("_", " ")),
            "server": "kanban",
            "description": plain(tool.description),
            "parameters": plain(" ".join(tool.input_schema.get("properties", {})).replace("_", " ")),
        }
        for tool in KANBAN_TOOLS
    ]


def tokens(document: dict[str, str], field: str) -> list[str]:
    names = [document["name"]] * NAME_REPEATS + [document[key] for key in FIELDS[1:-1]]
    return (" ".join(names) if field == "all" else document[field]).split()


def main() -> None:
    bm25s: Any = import_module("bm25s")

    texts = documents()
    every = sorted({word for text in texts for word in tokens(text, "all")})
    chosen = random.Random(14)
    queries = [chosen.sample(every, chosen.randint(1, 6)) for _ in range(30)]
    scores: dict[str, list[list[float]]] = {}
    for field in FIELDS:
        corpus = [tokens(text, field) for text in texts]
        # Lucene's variant differs from ours by the constant factor k1 + 1, which does not change the order.
        model = bm25s.BM25(method="lucene", k1=K1, b=B, dtype="float64")
        model.index(corpus, show_progress=False)
        known = [[word for word in query if word in model.vocab_dict] for query in queries]
        scores[field] = [
            [round(float(score) * (K1 + 1), 6) for score in model.get_scores(query)] if query else [0.0] * len(texts)
            for query in known
        ]
    made_with = f"bm25s {bm25s.__version__}, method lucene, k1 {K1}, b {B}, times k1 + 1"
    golden = {"made_with": made_with, "documents": texts, "queries": queries, "scores": scores}
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items())
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
