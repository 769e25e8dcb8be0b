"""Checks what a player changed, in the files of its world.

    python -m benchmarks.agent_trial.check DIR

Says for each task that changes something whether it was done, and for the reading ones nothing: their answers are
compared with `answers.md` by whoever checks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.agent_trial.bookings import all_bookings
from benchmarks.agent_trial.content import INVOICES, PLUGINS
from mcp_optimizer_demo.web.site import load_site

KEPT = {"B-2274", "B-2276", "B-2277", "B-2278", "B-2279", "B-2280"}
"""Bookings that look like the one to cancel."""

AWAY = {f"2026-12-{day}" for day in range(14, 19)}
"""The days of which all that Lin Zhao booked is to be cancelled."""

MORNINGS = {"14": "09:00", "15": "09:00", "16": "10:00", "17": "09:00", "18": "09:00"}
"""Days of December, and when Borealis is to be booked on them."""

TAGGED = [120, 126, 138, 143, 146]
"""The cards to put a new tag on."""

SPENT = {"Sales": 1674, "Support": -1872, "Research": 6047, "Logistics": -1564, "Design": -4418, "Legal": 670}
"""What each department spent more than planned."""

STEPS = [
    *("Invite the neighbours", "Order flowers", "Print the price list"),
    *("Rent chairs", "Hire a pianist", "Clean the windows"),
]

Changes = Mapping[str, list[dict[str, Any]]]
"""The arguments of all calls of the kanban server that changed something, by tool."""


def changes(world: Path) -> Changes:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows(world / "kanban.jsonl"):
        found.setdefault(row["tool"], []).append(row["arguments"])
    return found


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def bookings(world: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((world / "bookings.json").read_text(encoding="utf-8"))
    return found


def booked(world: Path, title: str) -> list[tuple[str, str, str, int]]:
    found = [row for row in bookings(world) if row["title"] == title]
    return sorted((row["room"], row["date"], row["time"], row["people"]) for row in found)


def tasks(world: Path, request: int) -> dict[str, Any]:
    stored = json.loads((world / "tasks.json").read_text(encoding="utf-8"))
    return {task["id"]: task for task in stored["requests"][request]["tasks"]}


def git(folder: Path, *arguments: str) -> list[str]:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def text(path: Path) -> str:
    """What a file has, or nothing if there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def thirty(world: Path) -> Iterator[tuple[str, bool]]:
    """Each of the thirty tasks that changes something, and whether it was done."""
    made = changes(world)
    moved = [(c["card_id"], c["column_id"]) for c in made.get("move_card", [])]
    cards = [(c["title"], c["column_id"]) for c in made.get("create_card", [])]
    comments = [(c["card_id"], c["text"]) for c in made.get("create_comment", [])]
    limits = [c for name in ("set_wip_limit", "update_column") for c in made.get(name, []) if c.get("wip_limit") == 4]
    ids = {row["booking_id"] for row in bookings(world)}
    summary, memory, repository = text(world / "files" / "summary.md"), text(world / "mem.json"), world / "repo"
    yield "4", (145, 18) in moved or (144, 18) in moved
    yield "6", comments == [(121, "Reviewed by the assistant")]
    yield "10", all(part in summary for part in ("Hallberg", "2027-01-31", "Brandt", "2026-12-31"))
    committed = git(repository, "log", "--format=%s")[0] == "Add div and readme"
    yield "12", committed and not git(repository, "status", "--short")
    yield "13", "Anna Keller" in memory and "Hallberg" in memory
    yield "16", len([title for title, at in cards if title.startswith("Thank you: ") and at == 22]) == 3
    yield "17", [c["column_id"] for c in limits] == [13]
    yield "19", booked(world, "Pricing") == [("Aurora", "2026-12-03", "15:00", 6)]
    yield "20", booked(world, "Winter review") == [("Harbour", "2026-12-04", "10:00", 9)]
    title = "Budget talk: Research"
    yield "25", booked(world, title) == [("Cedar", "2026-12-07", "09:00", 2)] and (title, 27) in cards
    yield "25, remembered", "Research" in memory and ("6047" in memory or "6,047" in memory)
    yield "26", set(tasks(world, 0)) == {"task-1", "task-3", "task-4", "task-5"}
    flyers = tasks(world, 1)
    yield "27", [task for task, stored in flyers.items() if stored["done"] and stored["approved"]] == ["task-6"]
    yield "28", "B-2275" not in ids and ids >= KEPT
    yield "29", [card for card, column in moved if column == 13] == [124, 125, 126]
    yield "30", (world / "sheets" / "reorder.xlsx").exists() and "230" in text(world / "files" / "reorder.md")


def twelve(world: Path) -> Iterator[tuple[str, bool]]:
    """Each of the twelve tasks that changes something, and whether it was done."""
    made, files = changes(world), world / "files"
    saved = {path.stem: path.read_text(encoding="utf-8").split() for path in (files / "sea").glob("*")}
    yield (
        "32",
        saved == {page.slug: page.markdown.split() for page in load_site().pages.values() if "sea" in page.topics},
    )
    yield "33", tagged(world) == TAGGED
    titles = {f"Budget 2025: {name}, {euros} EUR" for name, euros in SPENT.items()}
    cards = [c for c in made.get("create_card", []) if c["title"].startswith("Budget 2025: ")]
    written = {c["title"].replace(",", "").replace("+", "").replace("\N{MINUS SIGN}", "-") for c in cards}
    right = {title.replace(",", "") for title in titles}
    yield "34", len(cards) == len(SPENT) and written == right and {c["column_id"] for c in cards} == {27}
    yield "35", invoices(files) == {f"invoice-{at}.txt": is_paid for at, (_, _, is_paid) in enumerate(INVOICES, 2401)}
    gone = {row["booking_id"] for row in all_bookings()} - {row["booking_id"] for row in bookings(world)}
    theirs = [row for row in all_bookings() if row["booked_by"] == "Lin Zhao" and row["date"] in AWAY]
    yield "36", gone - {"B-2275"} == {row["booking_id"] for row in theirs}
    mornings = [("Borealis", f"2026-12-{day}", time, 4) for day, time in MORNINGS.items()]
    yield "37", booked(world, "Morning round") == mornings
    yield "38", all(plugin_is_right(world / "repo" / "plugins" / name, changed) for name, changed in PLUGINS.items())
    yield "39", checklist(made) == [(155, step) for step in STEPS]


def tagged(world: Path) -> list[int]:
    """The cards that got the tag "spring cleaning", whichever tool put it on them."""
    new = [row for row in rows(world / "kanban.jsonl") if row["tool"] == "create_tag"]
    ids = {row["answer"]["tag"]["tag_id"] for row in new if row["arguments"]["name"].casefold() == "spring cleaning"}
    made = changes(world)
    added = [c["card_id"] for c in made.get("add_tag_to_card", []) if c["tag_id"] in ids]
    updated = [c["card_id"] for c in made.get("update_card", []) if ids & {*c.get("tag_ids_to_add", [])}]
    return sorted({*added, *updated})


def checklist(made: Changes) -> list[tuple[int, str]]:
    """The card and the text of each new subtask, in order."""
    alone = [(c["card_id"], c) for c in made.get("create_subtask", [])]
    together = [(c["card_id"], step) for c in made.get("update_card", []) for step in c.get("subtasks_to_add", [])]
    steps = sorted([*alone, *together], key=lambda one: one[1].get("position", len(STEPS)))
    return [(card, step["description"]) for card, step in steps]


def invoices(files: Path) -> dict[str, bool]:
    """Each invoice, and whether it lies with the paid ones."""
    folder = files / "invoices"
    found = chain(folder.glob("*.txt"), (folder / "paid").glob("*.txt"))
    counted = Counter(path.name for path in found)
    return {name: (folder / "paid" / name).exists() for name, times in counted.items() if times == 1}


def plugin_is_right(folder: Path, is_changed: bool) -> bool:
    messages = git(folder, "log", "--format=%s")
    wanted = ["Save work in progress"] if is_changed else []
    return messages[:-1] == wanted and not git(folder, "status", "--short")


PLAYED: Mapping[str, tuple[Callable[[Path], Iterator[tuple[str, bool]]], ...]] = {
    "thirty": (thirty,),
    "twelve": (twelve,),
    "all": (thirty, twelve),
}


def played(world: Path) -> str:
    """Which tasks were played in this world."""
    file = next(path for path in (world / "play.json", world / "played.json") if path.exists())
    return str(json.loads(file.read_text(encoding="utf-8")).get("tasks", "thirty"))


def main() -> int:
    world = Path(sys.argv[1])
    results = [result for checks in PLAYED[played(world)] for result in checks(world)]
    for task, is_done in results:
        print(f"task {task}: {'done' if is_done else 'NOT DONE'}")
    return 0 if all(is_done for _, is_done in results) else 1


if __name__ == "__main__":
    sys.exit(main())
