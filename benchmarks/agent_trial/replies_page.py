"""Makes the new replies on `docs/replies.md` again, with their tokens.

    python -m benchmarks.agent_trial.replies_page WORLD

WORLD is a folder that `benchmarks.agent_trial.world` made. Searches and keywords are read from the page; the old
replies on it are a record and stay as they are. Each search is the first of its conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from pathlib import Path

from benchmarks.paths import ROOT
from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.token_counter import TokenCounter

PAGE = ROOT / "docs" / "replies.md"
_SEARCH = re.compile(
    r"(?P<before>^## \d+\. (?P<request>[^\n]+)\n\nKeywords: (?P<keywords>[^\n]*)\n.*?^New, )"
    r"[\d,]+ tokens:\n\n```\n.*?^```$",
    re.DOTALL | re.MULTILINE,
)
_ROW = re.compile(r"^\| (?P<request>[^|]+) \| (?P<old>[\d,]+) \| [\d,]+ \|$", re.MULTILINE)


def with_replies(page: str, replies: dict[str, tuple[str, int]]) -> str:
    """The page with these texts and tokens, by request, and the sums of its table."""

    def shown(found: re.Match[str]) -> str:
        text, tokens = replies[found["request"]]
        return f"{found['before']}{tokens:,} tokens:\n\n```\n{text}\n```"

    def row(found: re.Match[str]) -> str:
        request = found["request"]
        tokens = replies[request][1] if request in replies else sum(tokens for _, tokens in replies.values())
        return f"| {request} | {found['old']} | {tokens:,} |"

    return _ROW.sub(row, _SEARCH.sub(shown, page))


async def replies_of(world: Path, page: str) -> dict[str, tuple[str, int]]:
    counter = TokenCounter()
    settings = load_settings({"config": str(world / "mcp.json"), "database": "none"}, environment={})
    async with Optimizer.from_settings(settings) as optimizer:
        await optimizer.wait_for_servers(300)
        found = [
            (search["request"], optimizer.gateway.find(search["request"], search["keywords"], detail=Detail.SIGNATURE))
            for search in _SEARCH.finditer(page)
        ]
    # The page is not about this machine.
    texts = {request: one.text.replace(str(world), "/home/me") for request, one in found}
    return {request: (text, counter.count_tokens(text)) for request, text in texts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", type=Path)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_replies(page, asyncio.run(replies_of(parser.parse_args().world, page))), encoding="utf-8")


if __name__ == "__main__":
    main()
