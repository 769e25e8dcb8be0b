"""Unit tests mirror the packages: a folder for each room, one for the demo servers, and outside those only tests of the
root modules.
"""

from __future__ import annotations

from pathlib import Path

from tests.trying import spread_out

ROOT = Path(__file__).parents[2]
PACKAGE, UNIT = ROOT / "src" / "mcp_optimizer", ROOT / "tests" / "unit"


def test_every_folder_of_unit_tests_is_a_room() -> None:
    folders = {path.name for path in UNIT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert folders <= rooms | {"mcp_optimizer_demo"}


def test_unit_tests_outside_the_rooms_are_those_of_the_root_modules() -> None:
    tested = {path.stem.removeprefix("test_") for path in UNIT.glob("test_*.py")}
    assert tested <= {path.stem for path in PACKAGE.glob("*.py")}


def test_of_a_test_with_many_cases_the_check_keeps_some_that_lie_far_apart() -> None:
    cases = [str(number) for number in range(10)]
    assert spread_out(cases, 3) == ["0", "3", "6"]
    assert spread_out(cases, 20) == cases
