"""Lists every benchmark with its command.

    python -m benchmarks

Reads docstrings and imports nothing, so it is quick and needs no extra packages. A module of a group is a benchmark if
its docstring has its own command on a line; servers and other parts that benchmarks start name who starts them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Benchmark:
    """A module that measures something, and the first line of its docstring."""

    module: str
    summary: str


def module_name(path: Path) -> str:
    parts = path.relative_to(HERE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("__main__", "__init__"))


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def groups() -> list[Path]:
    """The packages that hold benchmarks, and this one, for those that stand alone."""
    packages = sorted(path.parent for path in HERE.glob("*/__init__.py"))
    return [group for group in (*packages, HERE) if any(benchmarks(group))]


def benchmarks(group: Path) -> Iterator[Benchmark]:
    for path in sorted(group.glob("*.py")):
        module, text = module_name(path), docstring(path)
        if module != "benchmarks" and re.search(rf"\bpython -m {re.escape(module)}(?![.\w])", text):
            yield Benchmark(module, text.partition("\n")[0])


def main() -> None:
    found = {group: list(benchmarks(group)) for group in groups()}
    width = max(len(one.module) for each in found.values() for one in each)
    for group, each in found.items():
        print(f"{group.name}: {docstring(group / '__init__.py').partition(chr(10))[0]}")
        for one in each:
            print(f"  python -m {one.module:{width}}  {one.summary}")
        print()
    print("Each takes --help. Results that were kept are in benchmarks/results.")


if __name__ == "__main__":
    main()
