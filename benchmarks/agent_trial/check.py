"""Checks what a player changed, in the files of its world and in its log.

    python -m benchmarks.agent_trial.check DIR

Says for each task that changes something whether it was done, and for the reading ones nothing: their answers are
compared with `answers.md` by whoever checks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KEPT = {"B-2274", "B-2276", "B-2277", "B-2278", "B-2279", "B-2280"}
"""Bookings that look like the one to cancel."""


def calls(world: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tools that were called, in either mode, with their arguments; failed calls left out."""
    for line in (world / "log.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["reply"].startswith("ERROR"):
            continue
        asked = row["arguments"]
        if row["tool"] == "call_tool":
            yield str(asked.get("tool_name")), asked.get("parameters") or {}
        else:
            yield row["tool"], asked


def booked(world: Path, title: str) -> list[tuple[str, str, str, int]]:
    rows = json.loads((world / "bookings.json").read_text(encoding="utf-8"))
    return [(row["room"], row["date"], row["time"], row["people"]) for row in rows if row["title"] == title]


def tasks(world: Path, request: int) -> dict[str, Any]:
    stored = json.loads((world / "tasks.json").read_text(encoding="utf-8"))
    return {task["id"]: task for task in stored["requests"][request]["tasks"]}


def git(world: Path, *arguments: str) -> list[str]:
    command = ["git", "-C", str(world / "repo"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def checks(world: Path) -> Iterator[tuple[str, bool]]:
    """Each task that changes something, and whether it was done."""
    made = list(calls(world))
    moved = [(c["card_id"], c["column_id"]) for name, c in made if name == "move_card"]
    cards = [(c["title"], c["column_id"]) for name, c in made if name == "create_card"]
    comments = [c for name, c in made if name == "create_comment"]
    limits = [c for name, c in made if name in ("set_wip_limit", "update_column") and c.get("wip_limit") == 4]
    ids = {row["booking_id"] for row in json.loads((world / "bookings.json").read_text(encoding="utf-8"))}
    summary = (world / "files" / "summary.md").read_text(encoding="utf-8")
    memory = (world / "mem.json").read_text(encoding="utf-8")
    yield "4", (145, 18) in moved or (144, 18) in moved
    yield "6", [(c["card_id"], c["text"]) for c in comments] == [(121, "Reviewed by the assistant")]
    yield "10", all(part in summary for part in ("Hallberg", "2027-01-31", "Brandt", "2026-12-31"))
    yield "12", git(world, "log", "--format=%s")[0] == "Add div and readme" and not git(world, "status", "--short")
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
    yield "30", (world / "sheets" / "reorder.xlsx").exists() and "230" in (world / "files" / "reorder.md").read_text()


def main() -> int:
    results = list(checks(Path(sys.argv[1])))
    for task, is_done in results:
        print(f"task {task}: {'done' if is_done else 'NOT DONE'}")
    return 0 if all(is_done for _, is_done in results) else 1


if __name__ == "__main__":
    sys.exit(main())
