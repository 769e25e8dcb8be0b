"""Whether signatures keep the rules that a caller needs, and what that costs.

    python -m benchmarks.definitions.rules [--missed] [--baseline]

`rule_sentences.jsonl` lists rules of real tools that stand outside a first sentence: where each is, words that say it,
and what a call gets wrong without it. They were chosen by reading a random sample of the dumps; those marked
`held_out` come from other servers, were chosen after the code was finished, and judge it. A rule counts as kept if
all of its words are in the signature that the first hit of a reply shows; a rule about a parameter must be on its line,
unless the line says that the rule stands above.
`--baseline` measures signatures of first sentences only. The results are written to `benchmarks/results/rules.md`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paths import RESULTS
from mcp_optimizer.compression.notes import first_sentence, lift_into, opening
from mcp_optimizer.compression.walk import Schema, carried
from mcp_optimizer.domain.tools import McpTool

LIST = Path(__file__).with_name("rule_sentences.jsonl")
RESULT = RESULTS / "rules.md"


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


@dataclass(frozen=True)
class Measured:
    """Signatures of all tools: their tokens, and which rules they keep."""

    tokens: Sequence[int]
    kept: Mapping[Rule, bool]

    def share(self, held_out: bool) -> float:
        judged = [kept for rule, kept in self.kept.items() if rule.held_out is held_out]
        return sum(judged) / len(judged) if judged else 0.0


def rules() -> list[Rule]:
    rows = [json.loads(line) for line in LIST.read_text(encoding="utf-8").splitlines()]
    return [Rule(**{**row, "words": tuple(row["words"])}) for row in rows]


def first_sentences(tool: McpTool) -> McpTool:
    """The tool with nothing but first sentences."""

    def short(node: Schema) -> Schema:
        note = node.get("description")
        return {**node, "description": first_sentence(note)} if isinstance(note, str) else node

    description, schema = lift_into(tool.description, tool.input_schema) or (tool.description, tool.input_schema)
    return tool.model_copy(update={"description": opening(description or ""), "input_schema": carried(schema, short)})
