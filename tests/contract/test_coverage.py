"""What is tested must be covered as far as the documents ask."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.requirement("B8", "CX-3")
def test_the_tests_fail_below_95_percent_of_the_branches_of_whatever_changes_a_schema() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = dict(re.findall(r"^(\w+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    for option in ("--cov=mcp_optimizer.compression", "--cov-branch", "--cov-fail-under=95"):
        assert option in recipes["coverage"].split()
    assert "$(MAKE) coverage" in recipes["test"]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["coverage"]
    assert settings == {"run": {"branch": True, "source": ["mcp_optimizer"]}}
