"""What the real servers of `benchmarks.scripts` work on: a folder, a repository, a graph, a database, a web site.

The same files every time: nothing is random, and commits have fixed dates. Each way of doing the tasks gets a world of
its own, so that one way's changes are not another's.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mcp_optimizer_demo import demo_server_commands

PEOPLE = "Ada Ben Carla David Elif Farid Greta Hugo Ines Jakob Karla Leon Mara Nils Olga Paul".split()
TEAMS = ("Storefront", "Payments", "Logistics", "Data")
SERVICES = ("auth", "billing", "catalog", "mailer", "search", "stock")
MESSAGES = (
    "request finished status=200",
    "cache miss, read from the database",
    "request finished status=304",
    "retrying upstream call attempt=2",
    "connection returned to the pool",
)
TOPICS = ("release plan", "support rota", "supplier contract", "shop redesign", "hiring", "security review", "budget")
PRODUCTS = (
    ("Alba desk", 240, 4),
    ("Birk shelf", 89, 0),
    ("Corda chair", 129, 17),
    ("Dune sofa", 890, 2),
    ("Eik table", 450, 0),
    ("Fjord lamp", 59, 31),
    ("Glen bench", 199, 5),
    ("Harbor bed", 720, 0),
    ("Iris mirror", 75, 9),
    ("Juno stool", 64, 12),
    ("Kelp rug", 149, 0),
    ("Linde cabinet", 530, 3),
)
"""The shop of the web site: name, price in euros, how many are in stock."""

AUTHORS = ("Ada Almeida", "Ben Berger", "Carla Costa", "David Dubois")
MODULES = ("cart.py", "checkout.py", "invoice.py", "search.py", "README.md")
COMMITS = 24

REAL = {
    "filesystem": "node_modules/.bin/mcp-server-filesystem",
    "memory": "node_modules/.bin/mcp-server-memory",
    "git": "pyenv/bin/mcp-server-git",
    "sqlite": "pyenv/bin/mcp-server-sqlite",
    "fetch": "pyenv/bin/mcp-server-fetch",
}
"""Server: its program in the folder of installed servers."""


@dataclass(frozen=True)
class World:
    """Where everything is that a task talks about."""

    folder: Path
    site: str
    """Address of the web site."""

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def repository(self) -> Path:
        return self.folder / "repo"

    @property
    def places(self) -> dict[str, str]:
        """What a script's text names as {files}, {repo} and {site}: the user would say where things are."""
        return {"files": str(self.files), "repo": str(self.repository), "site": self.site}


def missing(installed: Path | None) -> list[str]:
    """The real servers that are not installed there."""
    return [name for name, program in REAL.items() if installed is None or not (installed / program).exists()]


def server_file(world: World, installed: Path | None) -> Path:
    """Write the server file: the demo servers, and the real ones if they are installed."""
    entries: dict[str, Any] = {}
    for name, (command, *arguments) in demo_server_commands().items():
        entries[name] = {"command": command, "args": arguments}
    if installed is not None and not missing(installed):
        entries |= _real_entries(world, installed)
    path = world.folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    return path


def _real_entries(world: World, installed: Path) -> dict[str, Any]:
    programs = {name: {"command": str(installed / program)} for name, program in REAL.items()}
    return {
        "filesystem": {**programs["filesystem"], "args": [str(world.files)]},
        "memory": {**programs["memory"], "env": {"MEMORY_FILE_PATH": str(world.folder / "memory.jsonl")}},
        "git": {**programs["git"], "args": ["--repository", str(world.repository)]},
        "sqlite": {**programs["sqlite"], "args": ["--db-path", str(world.folder / "trips.db")]},
        # Without node on its path it reads pages in its own process; with it, it starts node for each of them.
        "fetch": {
            **programs["fetch"],
            "args": ["--ignore-robots-txt", "--allow-private-ips"],
            "env": {"PATH": str(installed / "pyenv" / "bin")},
        },
    }


@contextmanager
def made_world(folder: Path) -> Iterator[World]:
    """A new world in an empty folder; its web site is served until the end."""
    shutil.rmtree(folder, ignore_errors=True)
    write_files(folder / "files")
    write_repository(folder / "repo")
    write_graph(folder / "memory.jsonl")
    write_trips(folder / "trips.db")
    write_site(folder / "site")
    with served(folder / "site") as address:
        yield World(folder, address)


def write_files(folder: Path) -> None:
    for name in ("notes", "logs", "data", "drafts"):
        (folder / name).mkdir(parents=True)
    for number in range(1, 13):
        (folder / "notes" / f"meeting-{number:02}.md").write_text(_notes(number), encoding="utf-8")
    for service in SERVICES:
        (folder / "logs" / f"{service}.log").write_text(_log(service), encoding="utf-8")
    for number in range(1, 10):
        text = f"Chapter {number}\n\nIt was the year of the {PEOPLE[number]} expedition.\n"
        (folder / "drafts" / f"chapter-{number:02}.txt").write_text(text, encoding="utf-8")
    rows = ["id,name,city,rating"]
    cities = ("Lisbon", "Oslo", "Turin", "Ghent", "Graz")
    for number in range(1, 41):
        name = f"{PEOPLE[number % len(PEOPLE)]} & {PEOPLE[(number * 5 + 3) % len(PEOPLE)]}"
        rows.append(f"{number},{name},{cities[number % 5]},{number * 7 % 5 + 1}")
    (folder / "data" / "suppliers.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _notes(number: int) -> str:
    topic, owner, other = TOPICS[number % len(TOPICS)], PEOPLE[number % 16], PEOPLE[number * 3 % 16]
    lines = [f"# Meeting {number}: {topic}", "", f"Present: {owner}, {other}, {PEOPLE[(number + 5) % 16]}", ""]
    for point in range(1, 8):
        lines.append(f"{point}. {PEOPLE[(number + point) % 16]} reported on the {TOPICS[(number + point) % 7]}.")
        lines.append(f"   It takes {number * point % 9 + 1} days, and nobody objected to the plan as it was shown.")
        if (number * point) % 5 == 1:
            lines.append(f"   TODO({PEOPLE[(number + point) % 16]}): send the figures of part {point} to {owner}.")
    return "\n".join([*lines, "", "Next meeting in two weeks, in the same room.", ""])


def _log(service: str) -> str:
    seed, lines = SERVICES.index(service) + 2, []
    for number in range(60):
        at = f"2026-11-{2 + number // 30:02}T{8 + number % 12:02}:{number * 7 % 60:02}:{number * 13 % 60:02}Z"
        level, text = "INFO", MESSAGES[number * seed % len(MESSAGES)]
        if (number * seed) % 17 == 3:
            level, text = "ERROR", f"upstream timed out after {seed * 500} ms code=E{100 + number % 4}"
        lines.append(f"{at} {level} {service} id={number * 7919 * seed % 100_000:05} {text}")
    return "\n".join(lines) + "\n"


def write_repository(folder: Path) -> None:
    """A repository of two dozen commits, with one file changed and not committed."""
    folder.mkdir(parents=True)
    _git(folder, 0, "init", "-q", "-b", "main")
    for number in range(COMMITS):
        name = MODULES[number * 2 % len(MODULES)] if number % 6 else "checkout.py"
        text = [f"# {name}, change {number}", *(f"step_{number}_{at} = {at * number}" for at in range(6)), ""]
        path = folder / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text("\n".join(text) + before[:600], encoding="utf-8")
        _git(folder, number, "add", ".")
        subject = f"{'Fix' if number % 3 else 'Extend'} {name.partition('.')[0]}: step {number}"
        _git(folder, number, "commit", "-q", "-m", subject)
    (folder / "cart.py").write_text("# not finished\n", encoding="utf-8")


def _git(folder: Path, number: int, *arguments: str) -> None:
    author = AUTHORS[number * number % 5 % len(AUTHORS)]
    mail, date = f"{author.split()[0].lower()}@shop.example", f"2026-10-{number % 28 + 1:02}T10:00:00+0000"
    who = {"AUTHOR": author, "COMMITTER": author}
    environment = {f"GIT_{role}_{part}": value for role in who for part, value in _identity(author, mail, date)}
    command = ["git", "-c", "commit.gpgsign=false", *arguments]
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)


def _identity(name: str, mail: str, date: str) -> tuple[tuple[str, str], ...]:
    return (("NAME", name), ("EMAIL", mail), ("DATE", date))


def write_graph(path: Path) -> None:
    """Who works in which team and reports to whom; two people report to nobody."""
    lines: list[dict[str, Any]] = []
    for at, team in enumerate(TEAMS):
        lines.append(_entity(team, "team", f"Works on the {team.lower()} part of the shop", f"Sits on floor {at + 1}"))
    for at, name in enumerate(PEOPLE):
        since = f"Joined in {2012 + at * 5 % 13}"
        lines.append(_entity(name, "person", since, f"Speaks {('German', 'French', 'Turkish')[at % 3]}"))
        lines.append(_relation(name, TEAMS[at % 4], "works_in"))
        if at not in (0, 9):
            lines.append(_relation(name, PEOPLE[at // 2], "reports_to"))
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")


def _entity(name: str, kind: str, *observations: str) -> dict[str, Any]:
    return {"type": "entity", "name": name, "entityType": kind, "observations": list(observations)}


def _relation(one: str, other: str, kind: str) -> dict[str, Any]:
    return {"type": "relation", "from": one, "to": other, "relationType": kind}


def write_trips(path: Path) -> None:
    """Six tables, two of them without a primary key."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            "CREATE TABLE cities (id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT);"
            "CREATE TABLE travellers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, mail TEXT);"
            "CREATE TABLE trips (id INTEGER PRIMARY KEY, traveller_id INTEGER, city_id INTEGER, nights INTEGER,"
            " cost INTEGER);"
            "CREATE TABLE receipts (trip_id INTEGER, amount INTEGER, note TEXT);"
            "CREATE TABLE hotels (id INTEGER PRIMARY KEY, city_id INTEGER, name TEXT, stars INTEGER);"
            "CREATE TABLE old_trips (name TEXT, city TEXT, nights INTEGER);"
        )
        cities = ("Lisbon", "Oslo", "Turin", "Ghent", "Graz", "Cork")
        connection.executemany("INSERT INTO cities VALUES (?, ?, NULL)", enumerate(cities, 1))
        people = [(at, name, f"{name.lower()}@shop.example") for at, name in enumerate(PEOPLE, 1)]
        connection.executemany("INSERT INTO travellers VALUES (?, ?, ?)", people)
        trips = [(at, at % 16 + 1, at % 6 + 1, at % 5 + 1, at * 37 % 400 + 80) for at in range(1, 61)]
        connection.executemany("INSERT INTO trips VALUES (?, ?, ?, ?, ?)", trips)
        receipts = [(at, at * 37 % 400 + 80 - (at % 7 == 0) * 25, "paid by card") for at in range(1, 61)]
        connection.executemany("INSERT INTO receipts VALUES (?, ?, ?)", receipts)


def write_site(folder: Path) -> None:
    """A shop: a text that lists the pages of products, these pages, and one for the opening hours."""
    folder.mkdir(parents=True)
    (folder / "sitemap.txt").write_text("".join(f"/{_page(name)}\n" for name, _, _ in PRODUCTS), encoding="utf-8")
    for name, price, stock in PRODUCTS:
        about = f"The {name} is made of oiled wood from managed forests. It comes flat, with tools and a guide. "
        facts = f"<p>Price: {price} EUR</p><p>In stock: {stock}</p>"
        care = "<h2>Care</h2><p>Wipe with a dry cloth. Oil it once a year. Keep it out of the midday sun.</p>"
        delivery = "<h2>Delivery</h2><p>Two weeks after the order, to the door. Returns are free for 30 days.</p>"
        _write(folder / _page(name), name, f"<p>{about * 3}</p>{facts}{care}{delivery}")
    _write(folder / "hours.html", "Opening hours", "<p>Monday to Friday 9 to 18, Saturday 10 to 14.</p>")


def _page(name: str) -> str:
    return slug(name) + ".html"


def slug(name: str) -> str:
    """A product as its address spells it."""
    return name.lower().replace(" ", "-")


def _write(path: Path, title: str, body: str) -> None:
    text = f"<html><head><title>{title}</title></head><body><article><h1>{title}</h1>{body}</article></body></html>"
    path.write_text(text, encoding="utf-8")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing of requests."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder's files on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
