"""Whether the five words of a tool are understood: sheets for a judge, and scores.

    python -m benchmarks.definitions.five_words sheet SHEET.jsonl [--blind FOLDER/PREFIX]
    python -m benchmarks.definitions.five_words score SHEET.jsonl ANSWERS.jsonl...

A sheet has 300 tools of the dumps, at most three of a server, and twelve of the kanban server. Each item shows a tool's
five words, its description, and five descriptions in random order: its own and those of its nearest neighbours. The
judge, a person or a language model, answers with a line of JSON for each: `{"id": 1, "clear": true, "true": true,
"which": 0}`. Is it grammatical, and would a person understand it? Does it say nothing false? Which of the five does it
mean, judging by the five words only? `--blind` writes the sheet in four parts without the answers.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tools import dumped_tools
from mcp_optimizer.compression.five_words import five_words
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.search.words import terms
from mcp_optimizer_demo.kanban.server import KANBAN_TOOLS

SEED = 29
DRAWN = 300
MOST_OF_A_SERVER = 3
NEIGHBOURS = 4
PARTS = 4
KANBAN = "kanban"
PINNED = (
    "list_boards list_cards list_workspaces get_card get_board get_workspace create_card update_card move_card "
    "search_board health_check list_instances"
).split()
_LONGEST_SHOWN = 600
_LONGEST_CANDIDATE = 200
_LONGEST_READ = 2_000

Item = dict[str, Any]
Placed = tuple[str, McpTool]


def catalog() -> list[Placed]:
    """The tools of all dumps and of the kanban server, each with its server."""
    kanban = [McpTool.model_validate(tool.definition().model_dump(by_alias=True)) for tool in KANBAN_TOOLS]
    return [*dumped_tools(), *((KANBAN, tool) for tool in kanban)]


def drawn(tools: Sequence[Placed], chance: random.Random) -> list[int]:
    """The positions of the tools that are judged."""
    order = list(range(len(tools)))
    chance.shuffle(order)
    of_server: Counter[str] = Counter()
    found: list[int] = []
    for at in order:
        server, tool = tools[at]
        if server != KANBAN and (tool.description or "").strip() and of_server[server] < MOST_OF_A_SERVER:
            of_server[server] += 1
            found.append(at)
    pinned = [at for at, (server, tool) in enumerate(tools) if server == KANBAN and tool.name in PINNED]
    return [*found[:DRAWN], *pinned]


class Nearness:
    """How alike tools are, by the rare terms that they share."""

    def __init__(self, tools: Sequence[Placed]) -> None:
        self._tools = tools
        self._terms = [frozenset(terms(f"{tool.name} {_described(tool)[:_LONGEST_READ]}")) for _, tool in tools]
        counts = Counter(term for found in self._terms for term in found)
        self._weights = {term: math.log(len(tools) / count) ** 2 for term, count in counts.items()}
        self._sizes = [math.sqrt(self._weight(found)) or 1.0 for found in self._terms]
        self._of_server: dict[str, list[int]] = defaultdict(list)
        for at, (server, _) in enumerate(tools):
            self._of_server[server].append(at)

    def neighbours(self, at: int) -> list[int]:
        """The nearest tools of its server and, if they are too few, of all others. Copies of the tool do not count."""
        near = self._nearest(at, self._of_server[self._tools[at][0]], set())
        if len(near) < NEIGHBOURS:
            near += self._nearest(at, range(len(self._tools)), set(near))
        return near[:NEIGHBOURS]

    def _nearest(self, at: int, among: Iterable[int], known: set[int]) -> list[int]:
        own = _described(self._tools[at][1])
        others = [other for other in among if other not in known and _described(self._tools[other][1]) != own]
        return sorted(others, key=lambda other: (-self._likeness(at, other), other))[:NEIGHBOURS]

    def _likeness(self, one: int, other: int) -> float:
        return self._weight(self._terms[one] & self._terms[other]) / (self._sizes[one] * self._sizes[other])

    def _weight(self, found: Iterable[str]) -> float:
        return sum(self._weights[term] for term in sorted(found))


def _described(tool: McpTool) -> str:
    return tool.description or tool.title or tool.name


def sheet() -> list[Item]:
    """The items with their answers; the same tools and candidates whatever the five words are."""
    tools = catalog()
    chance = random.Random(SEED)
    positions = drawn(tools, chance)
    nearness = Nearness(tools)
    shorts = five_words([tool for _, tool in tools])
    items = []
    for number, at in enumerate(positions, start=1):
        server, tool = tools[at]
        candidates = [at, *nearness.neighbours(at)]
        chance.shuffle(candidates)
        items.append(
            {
                "id": number,
                "server": server,
                "name": tool.name,
                "short": shorts[at].text,
                "is_clear": shorts[at].is_clear,
                "full_description": _described(tool),
                "candidates": [_described(tools[other][1]) for other in candidates],
                "answer": candidates.index(at),
            }
        )
    return items


def blind(item: Item) -> Item:
    """What a judge sees of an item."""
    return {
        "id": item["id"],
        "short": item["short"],
        "full_description": item["full_description"][:_LONGEST_SHOWN],
        "candidates": [candidate[:_LONGEST_CANDIDATE] for candidate in item["candidates"]],
    }


def score(items: Sequence[Item], answers: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The shares of items that are clear, true and found, and all three: of all items, and of those used as words."""
    answered = {answer["id"]: answer for answer in answers}
    judged = [(item, answered[item["id"]]) for item in items if item["id"] in answered]
    return {
        group: _shares([(item, answer) for item, answer in judged if item["is_clear"] or not only_used])
        for group, only_used in (("all tools", False), ("told apart by five words", True))
    }


def _shares(judged: Sequence[tuple[Item, Mapping[str, Any]]]) -> list[float]:
    marks = [
        (_is_yes(answer["clear"]), _is_yes(answer["true"]), answer["which"] == item["answer"])
        for item, answer in judged
    ]
    count = max(len(marks), 1)
    return [len(marks), *(sum(column) / count for column in zip(*marks, strict=True)), sum(map(all, marks)) / count]


def _is_yes(answer: object) -> bool:
    return answer is True or str(answer).strip().lower() in {"yes", "true"}


def read(path: Path) -> list[Item]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def write(path: Path, items: Iterable[Item]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in items), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("sheet")
    making.add_argument("sheet", type=Path)
    making.add_argument("--blind", default="")
    scoring = commands.add_parser("score")
    scoring.add_argument("sheet", type=Path)
    scoring.add_argument("answers", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "sheet":
        items = sheet()
        write(options.sheet, items)
        size = math.ceil(len(items) / PARTS)
        for part in range(PARTS if options.blind else 0):
            shown = map(blind, items[part * size : (part + 1) * size])
            write(Path(f"{options.blind}_{part + 1}.jsonl"), shown)
        return
    answers = [answer for path in options.answers for answer in read(path)]
    print(f"{'':26}{'items':>6}{'clear':>7}{'true':>7}{'found':>7}{'all':>7}")
    for group, (count, *shares) in score(read(options.sheet), answers).items():
        print(f"{group:26}{count:6.0f}" + "".join(f"{share:7.3f}" for share in shares))


if __name__ == "__main__":
    main()
