"""SECURITY.md names tests for every boundary, and each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_boundary_of_the_threat_model_is_attacked_by_tests_that_exist() -> None:
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    table = page.partition("| boundary |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "→" in line]
    assert len(rows) >= 12
    for row in rows:
        named = re.findall(r"`(tests/[^`]+)`", row)
        assert named, row
        assert [path for path in named if "def test_" not in (ROOT / path).read_text("utf-8")] == [], row
