"""Regular expressions are compiled when they are first used."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import mcp_optimizer
from mcp_optimizer.runtime.patterns import regex


def test_an_expression_is_compiled_when_it_is_first_used() -> None:
    wrong = regex("(")
    with pytest.raises(re.error):
        wrong.search("a")


def test_it_does_what_a_compiled_one_does() -> None:
    declared = regex(r"(\d+)x", re.I)
    compiled = re.compile(r"(\d+)x", re.I)
    for text in ("12X", "x", "1x2x"):
        assert declared.findall(text) == compiled.findall(text)
        assert declared.sub(r"<\1>", text) == compiled.sub(r"<\1>", text)
    assert declared.pattern == compiled.pattern
    assert declared.flags == compiled.flags


def test_every_expression_of_the_package_can_be_compiled() -> None:
    root = Path(mcp_optimizer.__file__).parent
    files = [file for file in root.rglob("*.py") if "import regex\n" in file.read_text(encoding="utf-8")]
    modules = [import_module(".".join(file.relative_to(root.parent).with_suffix("").parts)) for file in files]
    kind = type(regex(""))
    declared = [value for module in modules for value in vars(module).values() if isinstance(value, kind)]
    assert all(re.compile(one.pattern, one.flags) for one in declared)
    assert len(declared) > 200
