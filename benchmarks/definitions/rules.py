"""Whether signatures keep the rules that a caller needs, and what that costs.

    python -m benchmarks.definitions.rules [--missed]

`rule_sentences.jsonl` lists rules of real tools: where each is, words that say it, and what a call gets wrong without
it. They were chosen by reading random samples of the dumps, mostly outside the first sentences. Those marked `held_out`
are of servers that no other rule of the list is of. A rule counts as kept if all of its words are in the signature that
the first hit of a reply shows; a rule about a parameter must be on its line, unless that says that the rule stands
above. The baseline has first sentences only. Results: `benchmarks/results/rules.md`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paths import RESULTS
from benchmarks.tools import dumped_tools
from mcp_optimizer.compression.brief import condensed, folded
from mcp_optimizer.compression.compress import SchemaNotes, compress
from mcp_optimizer.compression.notes import first_sentence, lift_into, opening, restates
from mcp_optimizer.compression.signature import Notes, signature
from mcp_optimizer.compression.walk import Schema, carried
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.token_counter import TokenCounter

LIST = Path(__file__).with_name("rule_sentences.jsonl")
RESULT = RESULTS / "rules.md"
FOLDED = 600
"""Tokens above which a reply only names the optional parameters of its best tool, except those that are asked for."""

NAMED_IN_FULL = 250
"""Tokens above which a tool that a request names is condensed."""


@dataclass(frozen=True)
class Rule:
    """A rule of a real tool, by the words that say it."""

    server: str
    tool: str
    parameter: str | None
    words: tuple[str, ...]
    without_it: str
    held_out: bool

    def is_in(self, text: str) -> bool:
        said = text.lower()
        if self.parameter is not None:
            own = [line for line in said.split("\n") if line.lstrip().startswith(self.parameter.lower())]
            is_above = any("(as above.)" in line for line in own)
            said = said if is_above else "\n".join(own) or said
        return all(word.lower() in said for word in self.words)


def first_hit(tool: McpTool, counter: TokenCounter) -> str:
    """The signature as a reply shows its best tool, for a request that mentions none of the optional parameters."""
    text = signature(tool)
    return folded(text, tool, ()) if counter.count_or_zero(text) > FOLDED else text


def by_name(tool: McpTool, counter: TokenCounter) -> str:
    """The signature as a reply shows a tool that the request names."""
    text = signature(tool)
    return condensed(text, tool) if counter.count_or_zero(text) > NAMED_IN_FULL else text


def first_sentences(tool: McpTool) -> McpTool:
    """The tool with every text cut to its first sentence, without notes that restate a name: what loses most rules."""
    description, schema = lift_into(tool.description, tool.input_schema) or (tool.description, tool.input_schema)

    def cut(node: Schema) -> Schema:
        note = node.get("description")
        node = {**node, "description": first_sentence(note)} if isinstance(note, str) else node
        properties = properties_of(node)
        return (
            {**node, "properties": {name: said(name, one) for name, one in properties.items()}} if properties else node
        )

    def said(name: str, node: Any) -> Any:
        note = node.get("description") if isinstance(node, dict) else None
        is_idle = isinstance(note, str) and restates(note, name)
        return {key: value for key, value in node.items() if key != "description"} if is_idle else node

    return tool.model_copy(
        update={"description": opening(description or "") or None, "input_schema": carried(schema, cut)}
    )


def as_text(tool: McpTool) -> str:
    """A compressed tool as lines, one for each parameter, so that a rule can be looked for where it belongs."""
    lines = (
        f"{name}: {json.dumps(node, ensure_ascii=False)}" for name, node in properties_of(tool.input_schema).items()
    )
    shared = json.dumps(tool.input_schema.get("$defs", {}), ensure_ascii=False)
    return "\n".join([tool.description or "", *lines, shared]).replace('\\"', '"')


def rules() -> list[Rule]:
    rows = [json.loads(line) for line in LIST.read_text(encoding="utf-8").splitlines()]
    return [Rule(**{**row, "words": tuple(row["words"])}) for row in rows]


def share(judged: Sequence[Rule], signatures: Mapping[tuple[str, str], str]) -> str:
    kept = sum(rule.is_in(signatures[rule.server, rule.tool]) for rule in judged)
    return f"{kept} of {len(judged)} ({100 * kept / len(judged):.1f} %)"


def report(rows: Mapping[str, Mapping[tuple[str, str], str]], tokens: Mapping[str, Sequence[int]]) -> str:
    found = rules()
    chosen, held_out = ([rule for rule in found if rule.held_out is held] for held in (False, True))
    lines = [
        "# What signatures keep of the rules for callers",
        "",
        "Measured with `python -m benchmarks.definitions.rules` on all tools of the dumps; tokens are cl100k_base. The",
        "first hit of a reply shows a signature with its rules; above 600 tokens it only names the optional parameters",
        "that have no weighty rule and that the request does not mention (here it mentions none). A tool that is named",
        "is condensed above 250: optional parameters and members without weighty rules stand together.",
        f"{len(found)} rules were chosen by reading random samples:",
        f"{len(chosen)} while the code was written, and {len(held_out)} of other servers afterwards. Of those, 63 were",
        "kept at first; what was missing led to the last change, that short sentences of notes are kept by default.",
        "",
        "| signature | rules kept | of other servers | median tokens | mean | total |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for label, signatures in rows.items():
        sizes = tokens[label]
        lines.append(
            f"| {label} | {share(chosen, signatures)} | {share(held_out, signatures)} "
            f"| {statistics.median(sizes):,.0f} | {statistics.mean(sizes):,.1f} | {sum(sizes):,} |"
        )
    return "\n".join([*lines, ""])


def schema_report(tools: Sequence[tuple[str, McpTool]], counter: TokenCounter) -> str:
    """Tokens against rules kept: the frontier of compressed schemas."""
    found, count = rules(), counter.count_tokens
    ruled = {(rule.server, rule.tool) for rule in found}
    plain = [compress(tool, count) for _, tool in tools]
    forms = {
        "all documentation": [made.tool for made in plain],
        "rules (sent)": [compress(tool, count, notes=SchemaNotes.RULES).tool for _, tool in tools],
        "first sentences": [compress(first_sentences(tool), count).tool for _, tool in tools],
        "no notes": [without_notes(made.tool) for made in plain],
    }
    baseline = sum(made.baseline_tokens for made in plain)
    lines = [
        "## In compressed schemas",
        "",
        'The same rules in the JSON Schemas of profiles and of `detail="schema"`: how many are kept, for how many',
        "tokens.",
        "",
        "| documentation | rules kept | tokens of all tools | less than as sent |",
        "|---|---:|---:|---:|",
    ]
    for label, made in forms.items():
        texts = {(s, t.name): as_text(one) for (s, t), one in zip(tools, made, strict=True) if (s, t.name) in ruled}
        total = sum(counter.count_many([one.model_dump_json() for one in made]))
        lines.append(f"| {label} | {share(found, texts)} | {total:,} | {100 * (1 - total / baseline):.1f} % |")
    return "\n".join([*lines, ""])


def without_notes(tool: McpTool) -> McpTool:
    def bare(node: Schema) -> Schema:
        return {key: value for key, value in node.items() if key not in ("description", "title", "examples", "example")}

    return tool.model_copy(update={"input_schema": carried(tool.input_schema, bare)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missed", action="store_true", help="list the rules that are lost")
    options = parser.parse_args()
    tools = dumped_tools()
    counter = TokenCounter()
    full = sum(counter.count_many([signature(tool, Notes.FULL) for _, tool in tools]))
    written = {
        "first sentences": [signature(first_sentences(tool), Notes.FULL) for _, tool in tools],
        "with rules": [signature(tool) for _, tool in tools],
        "of a first hit": [first_hit(tool, counter) for _, tool in tools],
        "of a tool that is named": [by_name(tool, counter) for _, tool in tools],
    }
    tokens = {label: counter.count_many(texts) for label, texts in written.items()}
    keys = [(server, tool.name) for server, tool in tools]
    rows = {label: dict(zip(keys, texts, strict=True)) for label, texts in written.items()}
    text = f"{report(rows, tokens)}\nWith all documentation, the signatures have {full:,} tokens in total.\n"
    text += f"\n{schema_report(tools, counter)}"
    RESULT.write_text(text, encoding="utf-8")
    print(text)
    if options.missed:
        for rule in rules():
            if not rule.is_in(rows["with rules"][rule.server, rule.tool]):
                print(f"{rule.server} {rule.tool} {rule.parameter or ''}: {', '.join(rule.words)}; {rule.without_it}")


if __name__ == "__main__":
    main()
