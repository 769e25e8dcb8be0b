"""What stands in the trial's world before the first task: files, a repository, databases, a workbook, task lists.

The same every time: rows are drawn from seeded generators, and commits have fixed dates. Called by `world`.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from benchmarks.agent_trial.bookings import all_bookings

TEXTS = {
    "notes-march.txt": "Meeting 3 March: supplier Hallberg raises prices by 4 percent from May.\n"
    "Invoice 2291 from Hallberg still open (1,240 EUR).\n",
    "notes-april.txt": "Meeting 7 April: new printer ordered. Invoice 2310 from Brandt paid.\n",
    "contracts/hallberg.md": "Contract with Hallberg GmbH, ends 2027-01-31, notice period three months.\n",
    "contracts/brandt.md": "Contract with Brandt AG, ends 2026-12-31, notice period one month.\n",
}
INVOICES = [
    ("Castell Print", 480, True),
    ("Norvik", 1_250, True),
    ("Lumen & Co", 95, False),
    ("Norvik", 640, True),
    ("Oduya", 2_310, True),
    ("Castell Print", 1_115, False),
    ("Norvik", 720, False),
    ("Lumen & Co", 310, True),
    ("Oduya", 1_890, True),
    ("Castell Print", 260, True),
    ("Norvik", 1_075, False),
    ("Oduya", 455, True),
    ("Lumen & Co", 130, True),
    ("Castell Print", 905, True),
]
"""Sender, euros, whether it is paid; numbered from 2401 on."""

PLUGINS = {"csv": False, "excel": True, "html": False, "json": True, "pdf": True, "yaml": False}
"""Repositories inside the repository: whether each has a change that is not committed."""

TRIPS = [("Lisbon", 4, 820.5), ("Oslo", 2, 640), ("Kyoto", 9, 2980.25), ("Porto", 3, 510)]

CARRIERS = ["Norda", "Swiftline", "Parcelo", "Kurier Nord", "Transvia"]
STATUSES = ["delivered"] * 8 + ["late", "lost"]

BUILDINGS = ["Mill", "Foundry", "Annex", "Depot", "Studio", "Tower"]

DEPARTMENTS = ["Sales", "Support", "Research", "Logistics", "Design", "Legal"]

TASKS: dict[str, list[tuple[str, str]]] = {
    "Office move": [
        ("Order desk lamps", "Twelve, for the first floor"),
        ("Order desks", "Twelve, for the first floor"),
        ("Order desks for guests", "Four, for the reception"),
        ("Cancel the old lease", "Notice is due in January"),
        ("Reorder desks", "Only if the first delivery is damaged"),
    ],
    "Trade fair": [
        ("Print flyers", "2,000 pieces"),
        ("Book the stand", "Hall 4, at least 12 square metres"),
        ("Invite customers", "The thirty largest"),
    ],
}

WORKBOOK_SCRIPT = """
import json, sys
from openpyxl import Workbook
book = Workbook()
book.remove(book.active)
for title, rows in json.load(sys.stdin).items():
    sheet = book.create_sheet(title)
    for row in rows:
        sheet.append(row)
book.save(sys.argv[1])
"""
DUCKDB_SCRIPT = """
import json, sys
import duckdb
tables = json.load(sys.stdin)
base = duckdb.connect(sys.argv[1])
base.execute("create table meters(meter_id integer primary key, building varchar)")
base.executemany("insert into meters values(?, ?)", tables["meters"])
base.execute("create table readings(meter_id integer, day date, kwh double)")
columns = dict(zip("mdk", tables["readings"]))
base.execute("insert into readings select unnest($m), unnest($d)::date, unnest($k)", columns)
base.close()
"""


def write_files(folder: Path) -> None:
    for name, text in TEXTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    invoices = folder / "invoices"
    invoices.mkdir()
    for number, (sender, euros, is_paid) in enumerate(INVOICES, 2401):
        status = "paid" if is_paid else "open"
        text = f"Invoice {number} from {sender}\nAmount: {euros:,} EUR\nStatus: {status}\n"
        (invoices / f"invoice-{number}.txt").write_text(text, encoding="utf-8")
    rows = ",\n".join(json.dumps(row) for row in shipments())
    (folder / "shipments.json").write_text(f"[{rows}]\n", encoding="utf-8")


def shipments() -> list[dict[str, Any]]:
    """A list so long that its text does not fit into one result."""
    chance = random.Random(22)
    return [
        {
            "id": number,
            "carrier": chance.choice(CARRIERS),
            "kg": round(chance.uniform(0.3, 78), 2),
            "status": chance.choice(STATUSES),
        }
        for number in range(4001, 6001)
    ]


def write_repository(folder: Path) -> None:
    """Two commits and another branch; one changed and one untracked file; plugins, each a repository."""
    folder.mkdir()
    code = folder / "calc.py"
    operators = {"add": "+", "mul": "*", "div": "/"}
    functions = [f"def {name}(a, b):\n    return a {sign} b\n" for name, sign in operators.items()]
    start(folder)
    for count, message in [(1, "Add calc"), (2, "Add mul")]:
        code.write_text("\n\n".join(functions[:count]), encoding="utf-8")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", message)
        if count == 1:
            git(folder, "branch", "feature/sub")
    code.write_text("\n\n".join(functions), encoding="utf-8")
    (folder / "README.md").write_text("# Calc\n", encoding="utf-8")
    with (folder / ".git" / "info" / "exclude").open("a", encoding="utf-8") as ignored:
        ignored.write("plugins/\n")
    for name, is_changed in PLUGINS.items():
        write_plugin(folder / "plugins" / name, is_changed)


def write_plugin(folder: Path, is_changed: bool) -> None:
    """One commit, and maybe a change."""
    folder.mkdir(parents=True)
    start(folder)
    code = folder / "plugin.py"
    code.write_text(f'NAME = "{folder.name}"\n', encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", f"Add the {folder.name} plugin")
    if is_changed:
        code.write_text(f'NAME = "{folder.name}"\nVERSION = 2\n', encoding="utf-8")


def start(folder: Path) -> None:
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.email", "trial@example.org")
    git(folder, "config", "user.name", "Trial")


def git(folder: Path, *arguments: str) -> None:
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-11-10T09:00:00+00:00")
    subprocess.run(["git", *arguments], cwd=folder, check=True, env={**os.environ, **dates})


def write_trips(path: Path) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("create table trips(id integer primary key, city text, nights int, cost real)")
        base.executemany("insert into trips(city, nights, cost) values(?, ?, ?)", TRIPS)


def write_bookings(path: Path) -> None:
    path.write_text(json.dumps(all_bookings(), indent=0), encoding="utf-8")


def write_task_lists(path: Path) -> None:
    """In the format of mcp-taskmanager; the first task of the trade fair is not done yet."""
    numbers = iter(range(1, 100))
    requests = [
        {
            "requestId": f"req-{at}",
            "originalRequest": name,
            "splitDetails": name,
            "tasks": [
                {
                    "id": f"task-{next(numbers)}",
                    "title": title,
                    "description": about,
                    "done": False,
                    "approved": False,
                    "completedDetails": "",
                }
                for title, about in tasks
            ],
            "completed": False,
        }
        for at, (name, tasks) in enumerate(TASKS.items(), 1)
    ]
    path.write_text(json.dumps({"requests": requests}), encoding="utf-8")


def budget() -> list[list[Any]]:
    """Plan and actual spending, department by department and month by month."""
    chance = random.Random(24)
    rows: list[list[Any]] = [["Department", "Month", "Planned", "Actual"]]
    for month in range(1, 13):
        for department in DEPARTMENTS:
            planned = chance.randrange(8_000, 20_000, 500)
            rows.append([department, f"2025-{month:02}", planned, planned + chance.randrange(-1_500, 1_600)])
    return rows


def write_workbook(path: Path, python: Path) -> None:
    sheets = {"Spending": budget(), "Notes": [["Note"], ["Figures of 2025, in EUR; audited in February 2026."]]}
    run_script(WORKBOOK_SCRIPT, path, python, sheets)


def readings() -> list[list[Any]]:
    """Three columns: meter, day and kWh. The Depot has two meters."""
    chance = random.Random(23)
    columns: list[list[Any]] = [[], [], []]
    for offset in range(304):
        day = date(2026, 1, 1) + timedelta(days=offset)
        for meter in range(1, len(BUILDINGS) + 2):
            for column, value in zip(columns, (meter, day.isoformat(), round(chance.uniform(40, 160), 1)), strict=True):
                column.append(value)
    return columns


def write_energy(path: Path, python: Path) -> None:
    meters = [*enumerate(BUILDINGS, 1), (len(BUILDINGS) + 1, "Depot")]
    run_script(DUCKDB_SCRIPT, path, python, {"meters": meters, "readings": readings()})


def run_script(script: str, path: Path, python: Path, data: Any) -> None:
    """Write a file whose library only that interpreter has."""
    subprocess.run([str(python), "-c", script, str(path)], input=json.dumps(data), text=True, check=True)
