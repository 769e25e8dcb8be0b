"""Limits on long files, private members of other objects, suppressions, and sleeps in tests: counts that only shrink.

`test_ratchets.py` compares the code with `ratchets.toml`. `python -m tests.contract.ratchets` lowers the numbers in
that file to those of the code and never raises one: fix what grew, or raise its number by hand for a good reason.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "scripts", "examples")
FILE = Path(__file__).with_name("ratchets.toml")

LONGEST = 500
"""Maximum lines of a file that has no exception."""

PUBLIC = frozenset({"_exit", "_replace", "_asdict", "_fields", "_mapping"})
"""Members with an underscore that their libraries document: of `os`, of named tuples, of SQLAlchemy's rows."""

SLEEPS = frozenset({"asyncio.sleep", "time.sleep", "anyio.sleep"})
_LAST_NAMES = {name.rpartition(".")[2] for name in SLEEPS}

_SUPPRESSION = re.compile(r"#\s*(noqa|type: ignore|pragma: no cover)(?:: ?([A-Z0-9, ]+)|\[([\w, -]+)\])?")

_PRIVATE = re.compile(r"(?<![\w.])([\w.]*)\s*\.\s*_(?!_)")
"""What stands before a name with one underscore."""

Counts = dict[str, int]


def files() -> Iterator[tuple[str, Path]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def long_files() -> Counts:
    """The number of lines of each file that has too many."""
    sizes = {name: len(text_of(path).splitlines()) for name, path in files()}
    return {name: size for name, size in sizes.items() if size > LONGEST}


def private_members() -> Counts:
    """How often each file uses a private member of an object other than its own."""
    counts = Counter[str]()
    for name, path in files():
        text = text_of(path)
        if not mentions_private(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
                counts[name] += 1
    return dict(counts)


def mentions_private(text: str) -> bool:
    """Whether a source may use a private member of another object: it need not be parsed to see that it does not."""
    return any(owner not in ("self", "cls") for owner in _PRIVATE.findall(text))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def suppressions() -> Counts:
    """How often a check is switched off, by folder and kind."""
    counts = Counter[str]()
    for name, path in files():
        text = text_of(path)
        # Most files have none, and tokens take longer than a search.
        if not _SUPPRESSION.search(text):
            continue
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.COMMENT:
                continue
            for kind, codes, rules in _SUPPRESSION.findall(token.string):
                for code in re.split(r"[ ,]+", (codes or rules or "everything").strip()):
                    counts[f"{name.split('/')[0]}: {kind} {code}"] += 1
    return dict(counts)


def sleeps() -> Counts:
    """How often each file of the tests, and of the servers and clients they start, sleeps.

    A test that sleeps is slower than its subject, and fails on a busy machine. `tests/waiting.py` waits instead.
    """
    counts = Counter[str]()
    for name, path in files():
        if name.startswith("tests/") and "sleep" in (text := text_of(path)):
            counts[name] = sum(isinstance(node, ast.Call) and _is_sleep(node) for node in ast.walk(ast.parse(text)))
    return dict(+counts)


def _is_sleep(call: ast.Call) -> bool:
    """Whether this call takes time: `sleep(0)` only lets others have their turn."""
    is_turn = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return last in _LAST_NAMES and ast.unparse(call.func) in SLEEPS and not is_turn


MEASURES = {
    "long files": long_files,
    "private members": private_members,
    "suppressions": suppressions,
    "sleeps": sleeps,
}


@cache
def measured(name: str) -> Counts:
    """What a measure counts, counted once."""
    return MEASURES[name]()


def allowed() -> dict[str, Counts]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def write(numbers: dict[str, Counts]) -> None:
    head = "# No number here may grow. `python -m tests.contract.ratchets` lowers them to what there is.\n"
    tables = (
        f'\n["{name}"]\n' + "".join(f'"{key}" = {count}\n' for key, count in sorted(counts.items()))
        for name, counts in numbers.items()
    )
    FILE.write_text(head + "".join(tables), encoding="utf-8")


def lower() -> None:
    known = allowed()
    lowered = {}
    for name in MEASURES:
        now = measured(name)
        lowered[name] = {key: min(limit, now[key]) for key, limit in known[name].items() if key in now}
    write(lowered)


if __name__ == "__main__":
    lower()
