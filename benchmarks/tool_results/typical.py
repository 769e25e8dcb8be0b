"""Tokens of typical large results before and after they are cut, and of reading on.

    python -m benchmarks.tool_results.typical --servers FOLDER [--write]

`benchmarks/tool_results/real_results.py` says what FOLDER holds.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paths import RESULTS, ROOT
from benchmarks.tool_results.real_results import SITE_PACKAGES, real_servers
from mcp_optimizer import Optimizer

RESULT = RESULTS / "results_table.md"

ORDERS = (
    "SELECT o.id, o.ordered_on, o.status, c.name, c.email, p.name AS product, i.quantity, i.unit_price_cents "
    "FROM orders o JOIN customers c ON c.id = o.customer_id JOIN order_items i ON i.order_id = o.id "
    "JOIN products p ON p.id = i.product_id ORDER BY o.id"
)


@dataclass(frozen=True)
class Sample:
    """A call with a large result, and what a model might look for in it."""

    name: str
    tool: str
    arguments: dict[str, Any]
    search: str
    select: str = ""


def samples() -> list[Sample]:
    return [
        Sample(
            "directory tree",
            "directory_tree",
            {"path": str(SITE_PACKAGES / "numpy")},
            "conftest",
            "[?type=='file'].name",
        ),
        Sample("files by pattern", "search_files", {"path": str(SITE_PACKAGES), "pattern": "**/*.py"}, "retry"),
        Sample("folder with sizes", "list_directory_with_sizes", {"path": "/usr/share/vim/vim90/syntax"}, "python"),
        Sample("git log", "git_log", {"repo_path": str(ROOT), "max_count": 1000}, "signature"),
        Sample("git diff", "git_diff", {"repo_path": str(ROOT), "target": "HEAD~8"}, "max_tokens"),
        Sample("query result", "secureDatabaseQuery", {"queryDescription": ORDERS, "maxRows": 1000}, "Ada", "data[-1]"),
        Sample("large file", "read_text_file", {"path": str(SITE_PACKAGES / "typing_extensions.py")}, "TypedDict"),
        Sample("issue list (cards of a board)", "list_cards", {}, "login", "cards[].title"),
    ]


def tokens(result: dict[str, Any]) -> int:
    return int(result["_meta"]["tokens"]["estimated"])


async def line(whole: Optimizer, gateway: Optimizer, sample: Sample) -> str:
    before = await whole.call(sample.tool, sample.arguments)
    after = await gateway.call(sample.tool, sample.arguments)
    about = after["_meta"].get("mcp-optimizer/result")
    cells = [sample.name, f"{tokens(before):,}", f"{tokens(after):,}"]
    if about is None:
        return f"| {' | '.join(cells)} | all | | | |"
    shown = f"{about['nextOffset']:,} of {about['total']:,} {about['unit']}"
    page = await gateway.read_result(about["resultId"], about["nextOffset"])
    found = await gateway.read_result(about["resultId"], search=sample.search)
    cells += [shown, f"{tokens(page):,}", f"{tokens(found):,} (`search={sample.search}`)"]
    if sample.select:
        picked = await gateway.read_result(about["resultId"], select=sample.select)
        cells.append(f"{tokens(picked):,} (`select={sample.select}`)")
    else:
        cells.append("")
    return f"| {' | '.join(cells)} |"


async def measure(folder: Path) -> str:
    lines = ["# Typical large results, before and after", ""]
    lines += [
        "`python -m benchmarks.tool_results.typical`: tokens (cl100k_base) of what the server sent and of what the "
        "model is sent, with `--max-tokens 2500` instead of 20000; then what a model pays to read on with "
        "`read_result`.",
        "",
        "| result | before | after | shown at once | next page | search | select |",
        "|---|---|---|---|---|---|---|",
    ]
    exact = {"token_estimate": "tiktoken:cl100k_base"}
    unlimited = {"max_tokens": 0, "max_rows": 0, "result_encoding": "original", **exact}
    async with real_servers(folder, **unlimited) as whole, real_servers(folder, max_tokens=2_500, **exact) as gateway:
        for sample in samples():
            lines.append(await line(whole, gateway, sample))
            print(lines[-1])
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=Path, required=True, help="where the real servers are installed")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    written = asyncio.run(measure(options.servers))
    if options.write:
        RESULT.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
