"""Counts what a conversation cost: requests, tokens read, errors, searches.

    python -m benchmarks.agent_trial.score LOG (--url URL | --definitions TOKENS)

Each exchange is one model request that reads the definitions and everything before it; one more writes the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.agent_trial.prompt import definitions, listed
from mcp_optimizer.token_counter import TokenCounter

FIND = "find_tool"


@dataclass
class Score:
    """What a conversation cost so far."""

    context: int
    requests: int = 1
    read: int = 0
    errors: int = 0
    replies: Counter[str] = field(default_factory=Counter)
    searches: list[tuple[str, int]] = field(default_factory=list)
    """Each search's arguments and the tokens of its reply."""

    def add(self, exchange: dict[str, Any], count: Callable[[str], int]) -> None:
        tool, reply = exchange["tool"], exchange["reply"]
        self.read += self.context
        size = count(reply)
        self.context += count(json.dumps({"name": tool, "arguments": exchange["arguments"]})) + size
        self.replies[tool] += size
        self.requests += 1
        # A list of calls is one exchange, and each of its failures would be an error of its own.
        self.errors += exchange.get("failed", 0) or reply.startswith("ERROR")
        if tool == FIND:
            self.searches.append((json.dumps(exchange["arguments"], ensure_ascii=False), size))

    @property
    def read_in_all(self) -> int:
        return self.read + self.context

    @property
    def find_share(self) -> float:
        return self.replies[FIND] / self.context


def score(exchanges: Iterable[dict[str, Any]], definition_tokens: int, count: Callable[[str], int]) -> Score:
    found = Score(definition_tokens)
    for exchange in exchanges:
        found.add(exchange, count)
    return found


def read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def report(found: Score, definition_tokens: int) -> str:
    by_tool = ", ".join(f"{tool} {tokens:,}" for tool, tokens in found.replies.most_common(12))
    lines = [
        f"requests               {found.requests:,}",
        f"definitions            {definition_tokens:,}",
        f"context at the end     {found.context:,}",
        f"tokens read in all     {found.read_in_all:,}",
        f"errors                 {found.errors}",
        f"searches               {len(found.searches)}",
        f"find_tool's share      {100 * found.find_share:.1f} % of the context at the end",
        f"tokens of replies      {by_tool}",
    ]
    return "\n".join(lines + [f"{size:7,}  {arguments}" for arguments, size in found.searches])


def counted_definitions(options: argparse.Namespace, count: Callable[[str], int]) -> int:
    """Tokens of what every request begins with: as given, or as the endpoint lists it now."""
    if options.definitions is not None:
        return int(options.definitions)
    return count(definitions(*asyncio.run(listed(options.url))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, metavar="LOG")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--url", help="the endpoint that was played")
    source.add_argument("--definitions", type=int, metavar="TOKENS", help="as `play` printed them")
    options = parser.parse_args()
    count = TokenCounter().count_tokens
    definition_tokens = counted_definitions(options, count)
    print(report(score(read_log(options.log), definition_tokens, count), definition_tokens))


if __name__ == "__main__":
    main()
