"""Builds the training pairs: `python -m training.pairs --out DIR [--seed N]`.

Reads the train sets and the corpora, and the dev sets only to keep their queries out. Writes `tools.jsonl` (server,
name, description, parameters), `pairs.jsonl` (query, its gold tools, its source) and `counts.json`; `train.py` reads
them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training import sets, synthetic, written
from training.features import ToolWords, normalised, terms

# Its tools are those of a dev set; a corpus must not contain what a dev set measures.
SERVERS_LEFT_OUT = frozenset({"py__msmcp-azure"})
CLAUSE_END = re.compile(r"[;\n]|(?<=[.!?])\s+|, (?=and |then |also )|\band then\b")
LONGEST_CLAUSE_WORDS = 30


@dataclass(frozen=True, slots=True)
class Pair:
    """A query with its gold tools (positions in `tools.jsonl`); `cut` is a sentence to leave out of their texts."""

    query: str
    tools: tuple[int, ...]
    source: str
    kind: str
    cut: str = ""


def dev_queries() -> frozenset[str]:
    """Every dev query, normalised; none of them may be used for training."""
    names = (*sets.DEV_SETS, sets.EXTRA_DEV_SET, sets.WRITTEN_DEV)
    texts = [query.text for name in names for query in sets.load_dev(name).queries]
    return frozenset(map(normalised, [*texts, *sets.listed_requests()]))


def dev_gold_tools() -> frozenset[str]:
    """Names and descriptions of the tools that answer dev queries; no corpus may contain them.

    Of the servers in `written_dev`, every tool counts, whether or not requests were written for it.
    """
    found = {tool.identity() for tool in sets.load_dev(sets.WRITTEN_DEV).tools}
    for name in sets.DEV_SETS:
        dev = sets.load_dev(name)
        gold = {position for query in dev.queries for position in query.relevant}
        found.update(dev.tools[position].identity() for position in gold)
    return frozenset(found)


def never_trains(server: str) -> bool:
    """Whether a real server must not be used for training, because a dev set measures it."""
    return server in SERVERS_LEFT_OUT or written.is_dev(server)


def query_pairs(tool_set: sets.ToolSet, offset: int) -> Iterator[Pair]:
    """The set's own queries and, where a query needs several tools, the clauses that refer to one of them."""
    for query in tool_set.queries:
        gold = tuple(offset + group[0] for group in query.groups)
        alternatives = tuple(offset + tool for group in query.groups for tool in group[1:])
        if not gold:
            continue
        yield Pair(query.text, gold + alternatives, tool_set.name, "query")
        if len(query.groups) > 1:
            yield from clause_pairs(query, tool_set, offset)


def clause_pairs(query: sets.Query, tool_set: sets.ToolSet, offset: int) -> Iterator[Pair]:
    """Each clause whose words fit one gold tool clearly better than the others, paired with that tool."""
    gold = [group[0] for group in query.groups]
    words = {tool: set(terms(tool_set.tools[tool].text())) for tool in gold}
    for clause in CLAUSE_END.split(query.text):
        clause = clause.strip(" ,.:-")
        own = set(terms(clause))
        if not 3 <= len(clause.split()) <= LONGEST_CLAUSE_WORDS or len(own) < 3:
            continue
        ranked = sorted(((len(own & words[tool]) / len(own), tool) for tool in gold), reverse=True)
        if ranked[0][0] >= 0.4 and ranked[0][0] >= ranked[1][0] + 0.15:
            yield Pair(clause, (offset + ranked[0][1],), tool_set.name, "clause")


def request_pair(tool: ToolWords, position: int, source: str, kind: str, chance: random.Random) -> Pair | None:
    """A request made from one sentence of the description, usually the first."""
    found = synthetic.sentences(tool.description)
    if not found:
        return None
    sentence = found[0] if chance.random() < 0.7 else chance.choice(found[:4])
    cut = sentence if chance.random() < 0.5 and len(found) > 1 else ""
    return Pair(synthetic.from_sentence(sentence, tool, chance), (position,), source, kind, cut)


def corpus_pairs(tool: ToolWords, position: int, source: str, chance: random.Random) -> Iterator[Pair]:
    """Requests made from the tool itself; the kinds ending in `_more` are a second draw."""
    found = synthetic.sentences(tool.description)
    if len(found) > 1 or (found and tool.parameters):
        yield Pair(found[0], (position,), source, "first_sentence", cut=found[0])
    if (text := synthetic.keywords(tool, chance)) is not None:
        yield Pair(text, (position,), source, "keywords")
    if (text := synthetic.near_keywords(tool, chance)) is not None:
        yield Pair(text, (position,), source, "near_keywords")
    for more in ("", "_more"):
        if (pair := request_pair(tool, position, source, f"request{more}", chance)) is not None:
            yield pair
        if (text := synthetic.from_name(tool, chance)) is not None:
            yield Pair(text, (position,), source, f"name_request{more}")


def corpora() -> list[sets.ToolSet]:
    """Every corpus that may be used for training: the given ones, and the freely licensed real servers."""
    return [*(sets.load_corpus(name) for name in sets.CORPORA), sets.load_free_servers(never_trains)]


def source_of(corpus: sets.ToolSet, position: int) -> str:
    """Where a tool comes from: the corpus and, for real servers, the fold, so that a fold can be left out."""
    if corpus.name != "mcp_tools_free":
        return corpus.name
    return f"{corpus.name}_{written.fold_of(corpus.ids[position].split('::')[0])}"


class _Known:
    """Every tool once, by its text, except tools that answer dev queries."""

    def __init__(self, tools: list[ToolWords]) -> None:
        self.tools = tools
        self._forbidden = dev_gold_tools()
        self._at: dict[str, int] = {}

    def add(self, tool: ToolWords) -> tuple[int | None, bool]:
        """The tool's position, if it may be used for training, and whether it is new."""
        key = tool.identity()
        if key in self._forbidden or not tool.description:
            return None, False
        is_new = key not in self._at
        if is_new:
            self._at[key] = len(self.tools)
            self.tools.append(tool)
        return self._at[key], is_new


def written_pairs(known: _Known) -> Iterator[Pair]:
    """The requests written for real tools; those for general-purpose tools with all tools of the same kind."""
    for one, position in _placed(written.read(sets.written_folder()), known):
        source = f"written_{written.fold_of(one.server)}"
        yield from (Pair(text, (position,), source, "written") for text in one.requests)
    for kind in written.MORE_KINDS:
        for one, position in _placed(written.read_more(kind), known):
            source = f"written_{written.fold_of(one.server)}"
            yield from (Pair(text, (position,), source, kind) for text in one.requests)
    general = list(_placed(written.read_general(sets.written_folder()), known))
    for one, position in general:
        others = tuple(at for other, at in general if other.kind == one.kind and at != position)
        source = f"written_{written.fold_of(one.server)}"
        yield from (Pair(text, (position, *others), source, "general") for text in one.requests)


def _placed(found: Iterable[written.Written], known: _Known) -> Iterator[tuple[written.Written, int]]:
    servers: dict[str, dict[str, ToolWords]] = {}
    for one in found:
        if never_trains(one.server):
            continue
        tools = servers.setdefault(one.server, sets.server_tools(one.server))
        if one.tool in tools:
            position, _ = known.add(tools[one.tool])
            if position is not None:
                yield one, position


def build(seed: int) -> tuple[list[ToolWords], list[Pair]]:
    """All tools and pairs; the same seed gives the same pairs."""
    chance = random.Random(seed)  # noqa: S311 - drawing, not secrets
    tools: list[ToolWords] = []
    pairs: list[Pair] = []
    for name in sets.TRAIN_SETS:
        tool_set = sets.load_train(name)
        pairs.extend(query_pairs(tool_set, len(tools)))
        tools.extend(tool_set.tools)
    known = _Known(tools)
    for corpus in corpora():
        for at, tool in enumerate(corpus.tools):
            position, is_new = known.add(tool)
            if position is not None and is_new:
                pairs.extend(corpus_pairs(tool, position, source_of(corpus, at), chance))
    pairs.extend(written_pairs(known))
    forbidden = dev_queries()
    return tools, [pair for pair in pairs if normalised(pair.query) not in forbidden]


def _write(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    tools, pairs = build(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    _write(options.out / "tools.jsonl", ({**asdict(tool), "description": tool.description[:1200]} for tool in tools))
    _write(options.out / "pairs.jsonl", (asdict(pair) for pair in pairs))
    counts = Counter(f"{pair.source}/{pair.kind}" for pair in pairs)
    summary = {"seed": options.seed, "tools": len(tools), "pairs": len(pairs), "by_kind": dict(sorted(counts.items()))}
    (options.out / "counts.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
