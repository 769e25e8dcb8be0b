"""Whether compressed schemas accept what the originals accept, and nothing more.

    python -m benchmarks.definitions.soundness [--examples N] [--every N]

Generates arguments for every real tool. Those for the compressed schema must, once expanded, be valid under the
original one. Those for the original schema must not be changed by `expand`, and must be valid under the compressed
one, except for nulls that may as well be left out. Violations are printed, and make the run fail.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis.internal.conjecture.utils import many
from hypothesis.strategies import SearchStrategy
from hypothesis_jsonschema import _from_schema, from_schema

from benchmarks.paths import DUMPS
from mcp_optimizer import McpTool, TokenCounter
from mcp_optimizer.compression.compress import CompressedTool, Dialect, SchemaNotes, compress
from mcp_optimizer.compression.groups import NO_GROUPS, expand
from mcp_optimizer.compression.walk import Schema
from mcp_optimizer.upstream.listing import read_tools

EXAMPLES = 3
LARGEST = 60_000
"""Characters of a schema; the generator takes minutes for longer ones."""


class _Elements:
    """hypothesis' `many` as hypothesis-jsonschema 0.23 calls it; newer versions are iterated and have no `more`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self._many = many(*given, **named)
        self._turns = iter(self._many.__enter__())

    def more(self) -> bool:
        for _ in self._turns:
            return True
        self._many.__exit__(None)
        return False

    def reject(self) -> None:
        self._many.reject()


if not hasattr(many, "more"):
    vars(_from_schema)["cu"] = SimpleNamespace(many=_Elements)


class NotGenerable(Exception):
    """The generator cannot make arguments for this schema, so nothing is known of its soundness."""


@dataclass(frozen=True)
class Violation:
    """Arguments that one schema admits and the other does not."""

    tool: str
    problem: str
    arguments: Any


def real_tools(folder: Path = DUMPS) -> Iterator[tuple[str, McpTool]]:
    """Every tool of every dump, with the name of its dump."""
    for path in sorted(folder.glob("*.json")):
        dump = json.loads(path.read_text(encoding="utf-8"))
        for tool in read_tools(dump["tools"] if isinstance(dump, dict) else dump).tools:
            yield path.stem, tool.parsed()


def violations(tool: McpTool, compressed: CompressedTool, examples: int, both_ways: bool) -> list[Violation]:
    """What some generated arguments show to be wrong with a compressed tool."""
    original = _validator(tool.input_schema)
    smaller = _validator(compressed.tool.input_schema)
    found: list[Violation] = []
    for arguments in generated(compressed.tool.input_schema, examples):
        # The generator does not always read a schema as the validator does.
        if not smaller.is_valid(arguments):
            continue
        expanded = expand(arguments, compressed.groups)
        if not original.is_valid(expanded):
            found.append(Violation(tool.name, "admitted by the compressed schema only", arguments))
    if both_ways:
        for arguments in generated(tool.input_schema, examples):
            if not original.is_valid(arguments):
                continue
            if expand(arguments, compressed.groups) != arguments:
                found.append(Violation(tool.name, "changed by expand", arguments))
            if not compressed.groups and not _is_valid_but_for_nulls(arguments, smaller, original):
                found.append(Violation(tool.name, "admitted by the original schema only", arguments))
    return found


def _is_valid_but_for_nulls(
    arguments: Any, smaller: jsonschema_rs.Validator, original: jsonschema_rs.Validator
) -> bool:
    """Whether arguments are valid once nulls that may as well be left out are gone: the only narrowing allowed."""
    for candidate in (arguments, _without_refused_nulls(arguments, smaller), _without_nulls(arguments)):
        if smaller.is_valid(candidate) and original.is_valid(candidate):
            return True
    return False


def _without_refused_nulls(arguments: Any, validator: jsonschema_rs.Validator) -> Any:
    kept = json.loads(json.dumps(arguments))
    for error in list(validator.iter_errors(kept)):
        *path, last = error.instance_path or [""]
        holder = kept
        for step in path:
            holder = holder[step]
        if isinstance(holder, dict) and last in holder and holder[last] is None:
            del holder[last]
    return kept


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def generated(schema: Schema, examples: int) -> list[Any]:
    """Arguments for a schema; every run generates the same ones."""
    if len(json.dumps(schema)) > LARGEST:
        raise NotGenerable("too large")
    found: list[Any] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _collect(from_schema(schema), examples, found)
    except Exception as error:
        if not found:
            raise NotGenerable(type(error).__name__) from error
    return [arguments for arguments in found if isinstance(arguments, dict)]


def _collect(strategy: SearchStrategy[Any], examples: int, found: list[Any]) -> None:
    @seeded(20261115)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(arguments: Any) -> None:
        found.append(arguments)

    collect()


def _validator(schema: Schema) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, RecursionError) as error:
        raise NotGenerable("no valid schema") from error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--every", type=int, default=1, help="check only every n-th tool")
    options = parser.parse_args()
    counter = TokenCounter()
    counts: Counter[str] = Counter()
    started = time.perf_counter()
    for number, (server, tool) in enumerate(real_tools()):
        if number % options.every:
            continue
        counts["tools"] += 1
        if counts["tools"] % 1_000 == 0:
            print(f"… {counts['tools']:,} tools, {counts['violations']} violations", file=sys.stderr, flush=True)
        checked: set[str] = set()
        for dialect in (Dialect.PLAIN, Dialect.REFERENCES):
            compressed = compress(tool, counter.count_tokens, dialect, notes=SchemaNotes.RULES)
            if (text := compressed.tool.model_dump_json()) in checked:
                counts[f"{dialect}: same as plain"] += 1
                continue
            counts[f"{dialect}: grouped"] += compressed.groups != NO_GROUPS
            try:
                found = violations(tool, compressed, options.examples, both_ways=True)
            except NotGenerable as reason:
                counts[f"{dialect}: skipped ({reason})"] += 1
                continue
            checked.add(text)
            counts[f"{dialect}: checked"] += 1
            counts["violations"] += len(found)
            for violation in found:
                shown = json.dumps(violation.arguments, ensure_ascii=False)[:300]
                print(f"{server} {violation.tool} ({dialect}): {violation.problem}: {shown}", flush=True)
    for name, count in sorted(counts.items()):
        print(f"{name:40}{count:8,}")
    print(
        f"{counts['violations']} violations in {time.perf_counter() - started:.0f} s, {options.examples} examples each"
    )
    return 1 if counts["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
