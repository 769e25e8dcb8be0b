"""Every promise of `docs/promises.md` has a test that proves it, and no test names any other promise.

Each paragraph of the page lists the ids of its promises in a comment; a test names them in `@pytest.mark.promise`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


def paragraphs() -> list[str]:
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    return re.split(r"^- ", page, flags=re.MULTILINE)[1:]


def ids(paragraph: str) -> list[str]:
    return [name.strip() for text in re.findall(r"<!-- promises: (.*?) -->", paragraph) for name in text.split(",")]


def proofs(path: Path) -> Iterator[str]:
    """The ids of the promises that the tests of a file claim to prove."""
    text = path.read_text(encoding="utf-8")
    if "promise" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.promise":
                    yield from (ast.literal_eval(argument) for argument in decorator.args)


PROMISED = [name for paragraph in paragraphs() for name in ids(paragraph)]


@cache
def proved() -> dict[str, Path]:
    return {name: path for path in TESTS for name in proofs(path)}


def test_every_promise_is_proved_by_a_test() -> None:
    assert [name for name in PROMISED if name not in proved()] == []


def test_no_test_proves_a_promise_that_is_not_made() -> None:
    assert {name: path.name for name, path in proved().items() if name not in PROMISED} == {}


def test_every_paragraph_of_promises_has_ids_and_no_id_is_given_twice() -> None:
    assert [paragraph[:60] for paragraph in paragraphs() if not ids(paragraph)] == []
    assert [name for name, count in Counter(PROMISED).items() if count > 1] == []
