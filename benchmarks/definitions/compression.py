"""What each form and each technique saves, in tokens, over all real tools.

    python -m benchmarks.definitions.compression

Reads the tools/list dumps beside the repository, prints the tables and writes `benchmarks/results/compression.md`. The
baseline is each tool as its server sends it, as compact JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.paths import DUMPS, RESULTS
from mcp_optimizer import McpTool, TokenCounter
from mcp_optimizer.compression.compress import CompressedTool, Dialect, SchemaNotes, compress
from mcp_optimizer.compression.signature import Notes, signature
from mcp_optimizer.upstream.listing import read_tools

RESULT = RESULTS / "compression.md"
MEASURED_ON = "2026-11-18"
BUSINESS_MAP = "edicarlos.lds__businessmap-mcp"
LOSSLESS = {Dialect.PLAIN: "lossless, plain", Dialect.REFERENCES: "lossless, references"}
RULES = "first sentences and rules, plain (sent)"
AS_TEXT = ", text only"
SHOWN = "only name, description and inputSchema, as sent"


@dataclass
class Totals:
    """Tokens by form, and how many tools each form made larger."""

    baseline: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    larger: Counter[str] = field(default_factory=Counter)

    def add(self, baseline: int, forms: dict[str, int]) -> None:
        self.baseline += baseline
        self.tokens.update(forms)
        self.larger.update({form: int(tokens > baseline) for form, tokens in forms.items()})

    def saved(self, form: str) -> float:
        return 100 * (1 - self.tokens[form] / self.baseline)


@dataclass(frozen=True)
class Measured:
    """One tool in all its forms."""

    name: str
    baseline: int
    forms: dict[str, int]
    lossless: dict[Dialect, CompressedTool]


def measure(tool: McpTool, counter: TokenCounter) -> Measured:
    lossless = {dialect: compress(tool, counter.count_tokens, dialect, explained=True) for dialect in LOSSLESS}
    forms = {LOSSLESS[dialect]: compressed.tokens for dialect, compressed in lossless.items()}
    forms[RULES] = compress(tool, counter.count_tokens, notes=SchemaNotes.RULES).tokens
    forms[SHOWN] = counter.count_tool_tokens(
        McpTool(name=tool.name, description=tool.description, inputSchema=tool.input_schema)
    )
    for notes in Notes:
        text = signature(tool, notes)
        entry = McpTool(name=tool.name, description=text, inputSchema={"type": "object"})
        forms[f"signature, {notes}"] = counter.count_tool_tokens(entry)
        forms[f"signature, {notes}{AS_TEXT}"] = counter.count_tokens(text)
    return Measured(tool.name, lossless[Dialect.PLAIN].baseline_tokens, forms, lossless)


def by_technique(tools: Iterable[Measured], dialect: Dialect) -> Counter[str]:
    """Tokens that each technique saved, in the order in which techniques are applied."""
    spared: Counter[str] = Counter()
    for tool in tools:
        before = tool.baseline
        for step in tool.lossless[dialect].steps:
            spared[step.technique] += before - step.tokens
            before = step.tokens
    return spared


def totals(tools: Iterable[Measured]) -> Totals:
    found = Totals()
    for tool in tools:
        found.add(tool.baseline, tool.forms)
    return found


def report(servers: dict[str, list[Measured]]) -> str:
    tools = [tool for measured in servers.values() for tool in measured]
    everything = totals(tools)
    each_server = [totals(measured) for measured in servers.values() if measured]
    board = servers.get(BUSINESS_MAP, [])
    largest = sorted(board, key=lambda tool: tool.baseline, reverse=True)[:3]
    rows = []
    for form in everything.tokens:
        median = statistics.median(server.saved(form) for server in each_server)
        special = [f"{totals(some).saved(form):.1f}" if some else "" for some in (board, largest)]
        cells = [form, f"{everything.tokens[form]:,}", f"{everything.saved(form):.1f}", f"{median:.1f}", *special]
        rows.append([*cells, str(everything.larger[form])])
    techniques = {dialect: by_technique(tools, dialect) for dialect in LOSSLESS}
    names = list(dict.fromkeys(name for spared in techniques.values() for name, _ in spared.most_common()))
    return "\n".join(
        [
            "# What compression saves",
            "",
            f"Measured on {MEASURED_ON} with `python -m benchmarks.definitions.compression`: {len(tools):,} tools of",
            f"{len(servers)} real servers, {everything.baseline:,} tokens (cl100k_base) as sent, in compact JSON.",
            'Percent of these tokens saved; "median" is over servers. A signature is counted as the entry that',
            'find_tool returns (`{"name":…,"description":<signature>,"inputSchema":{"type":"object"}}`) and as text.',
            "",
            *table(
                ["form", "tokens", "all tools", "median server", "BusinessMap", "its 3 largest", "larger tools"], rows
            ),
            "",
            "Larger tools are counted before the fallback: where a form is larger, the original is sent instead.",
            f"BusinessMap has {len(board)} tools and {totals(board).baseline:,} tokens; its largest are "
            f"{', '.join(f'`{tool.name}` ({tool.baseline:,})' for tool in largest)}."
            if board
            else "",
            "",
            "## Lossless, by technique",
            "",
            "Percent of all tokens, each technique after the ones that are applied before it, and only where it pays.",
            "",
            *table(
                ["technique", *LOSSLESS.values()],
                [
                    [name, *(f"{100 * techniques[d][name] / everything.baseline:.2f}" for d in LOSSLESS)]
                    for name in names
                ],
            ),
            "",
        ]
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    counter = TokenCounter()
    servers: dict[str, list[Measured]] = {}
    for path in sorted(DUMPS.glob("*.json")):
        dump = json.loads(path.read_text(encoding="utf-8"))
        listed = read_tools(dump["tools"] if isinstance(dump, dict) else dump).tools
        servers[path.stem] = [measure(tool.parsed(), counter) for tool in listed]
    if not servers:
        print(f"No dumps in {DUMPS}.", file=sys.stderr)
        return 1
    text = report(servers)
    RESULT.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
