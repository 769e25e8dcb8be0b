"""The page on the layout of the code draws the rooms that there are, and names modules that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.test_imports import LEVELS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "mcp_optimizer"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
WORDS = "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()
WORDS += "sixteen seventeen eighteen nineteen twenty twenty-one twenty-two twenty-three twenty-four".split()

ROOMS = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
FILES = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}


def drawn() -> set[str]:
    """The names at the left of the drawing's lines."""
    lines = re.findall(r"^    │ ([\w ·]+?)(?: {2,}.*)?│$", PAGE, re.MULTILINE)
    return {name.strip() for line in lines for name in line.split("·")}


def test_the_drawing_has_every_room_and_no_other() -> None:
    assert drawn() == ROOMS | FILES


def test_the_table_has_a_row_for_every_room_and_no_other() -> None:
    assert re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE) == [
        room for floor in LEVELS for room in sorted(floor & ROOMS, key=row)
    ]


def row(room: str) -> int:
    return PAGE.find(f"| `{room}/` |")


def test_the_number_of_rooms_and_floors_is_right() -> None:
    assert f"{WORDS[len(ROOMS)].capitalize()} rooms on {WORDS[len(LEVELS)]} floors." in PAGE


def test_every_module_that_the_page_names_with_its_room_is_there() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+)(?:\.\w+)?`", PAGE)) - METHODS
    missing = {name for name in named if not any(is_there(place / name) for place in (PACKAGE, ROOT))}
    assert len(named) > 40
    assert missing == set()


METHODS = {"tools/call", "tools/list", "server/discover"}


def is_there(path: Path) -> bool:
    return path.is_dir() or any(path.parent.glob(f"{path.name}.*"))
