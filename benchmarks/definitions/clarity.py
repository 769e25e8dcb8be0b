"""Whether a tool is still found when only its short description is indexed.

    python -m benchmarks.definitions.clarity [--sample N]

Searches all dumps for tools by their full descriptions, and compares recall@5 of each shorter form with that of the
full text. The search uses words only, so that it judges the description itself.
"""

from __future__ import annotations

import argparse
import random

import numpy as np

from benchmarks.tools import dumped_tools
from mcp_optimizer.compression.five_words import five_words
from mcp_optimizer.compression.lossless import tidy
from mcp_optimizer.compression.notes import opening
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.search.engine import SearchIndex
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import Vocabulary, count_terms
from mcp_optimizer.search.tool_texts import Document


def recall(tools: list[tuple[str, McpTool]], descriptions: list[str], sample: list[int]) -> float:
    vocabulary = Vocabulary()
    entries = [
        Entry(server, tool.name, count_terms(Document(tool.name, server, description, ""), vocabulary))
        for (server, tool), description in zip(tools, descriptions, strict=True)
    ]
    index = SearchIndex(entries, vocabulary)
    found = 0
    for at in sample:
        ranking = index.ranking(tools[at][1].description or tools[at][1].name, np.ones(len(tools), dtype=np.bool_), 5)
        found += at in ranking.positions
    return found / len(sample)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=2_000)
    options = parser.parse_args()
    tools = dumped_tools()
    sample = random.Random(7).sample(range(len(tools)), min(options.sample, len(tools)))
    shorts = five_words([tool for _, tool in tools])
    unclear = sum(not short.is_clear for short in shorts)
    print(f"{len(tools):,} tools; {unclear:,} are told apart by their names only, not by five words")
    whole = 0.0
    full = [tidy(tool.description or "") for _, tool in tools]
    forms = {"full": full, "sentence": list(map(opening, full)), "words": [short.text for short in shorts]}
    for form, texts in forms.items():
        figure = recall(tools, texts, sample)
        whole = whole or figure
        print(f"{form:10} recall@5 {figure:.4f}   loss {whole - figure:.4f}")


if __name__ == "__main__":
    main()
