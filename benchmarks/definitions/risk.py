"""How well the verbs of tools' names agree with the annotations of those that have them.

    python -m benchmarks.definitions.risk [--differing]

Reads the dumps. Compared are tools whose annotations are complete (`readOnlyHint: true`, `destructiveHint: true`, or
both false) with what the name alone says. Results: `benchmarks/results/risk.md`.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict

from benchmarks.tools import dumped_tools
from mcp_optimizer.access.policy.risk import risk_of, risk_of_name
from mcp_optimizer.domain.caller import Risk

_UNKNOWN = "unknown"
_COLUMNS = (*(risk.value for risk in Risk), _UNKNOWN)
_SHOWN = 40


def claimed(annotations: dict[str, object]) -> Risk | None:
    """The class that annotations state in full."""
    if annotations.get("readOnlyHint") is True:
        return Risk.READ
    if annotations.get("destructiveHint") is True:
        return Risk.DESTRUCTIVE
    both = (annotations.get("readOnlyHint"), annotations.get("destructiveHint"))
    return Risk.WRITE if both == (False, False) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--differing", action="store_true", help="also print names for which the two differ")
    options = parser.parse_args()
    agreement: dict[str, Counter[str]] = defaultdict(Counter)
    final: Counter[tuple[str, str]] = Counter()
    differing: dict[tuple[str, str], list[str]] = defaultdict(list)
    for server, tool in dumped_tools():
        said = risk_of_name(tool.name)
        by_name = said.risk.value if said else _UNKNOWN
        annotated = claimed(tool.annotations or {})
        agreement[annotated.value if annotated else "none or incomplete"][by_name] += 1
        if annotated is not None and by_name != annotated:
            differing[annotated.value, by_name].append(tool.name)
        found = risk_of(server, tool.name, tool.annotations, {})
        final[found.risk.value, found.source] += 1
    print("| annotations | " + " | ".join(f"name: {column}" for column in _COLUMNS) + " |")
    print("|---|" + "---:|" * len(_COLUMNS))
    for row in (*(risk.value for risk in Risk), "none or incomplete"):
        print(f"| {row} | " + " | ".join(f"{agreement[row][column]:,}" for column in _COLUMNS) + " |")
    print("\n| class | by annotations | by name | by default |\n|---|---:|---:|---:|")
    for risk in Risk:
        counts = (final[risk.value, source] for source in ("annotations", "name", "default"))
        print(f"| {risk.value} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    if options.differing:
        for (annotated_as, named), names in differing.items():
            print(f"\n{annotated_as} by annotations, {named} by name: {', '.join(names[:_SHOWN])}")


if __name__ == "__main__":
    main()
