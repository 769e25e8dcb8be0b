"""Tasks on real servers: files, a repository, a knowledge graph, a database and a web site."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Any

from benchmarks.scripts_tasks.model import Model
from benchmarks.scripts_tasks.task import Task
from benchmarks.scripts_tasks.world import PRODUCTS, World, slug

TODO = re.compile(r"TODO\((\w+)\)")
ERROR = re.compile(r" ERROR (\w+) .*code=(E\d+)")
PRICE, STOCK = re.compile(r"Price: (\d+)"), re.compile(r"In stock: (\d+)")
ERRORS = {
    f"{service} E{code}": 1
    for service, codes in {
        "auth": (102, 103, 100),
        "billing": (101, 102, 103, 100),
        "catalog": (101, 102, 103, 100),
        "mailer": (100, 101, 102, 103),
        "search": (101, 102, 103),
        "stock": (103, 100, 101),
    }.items()
    for code in codes
}
MISMATCH = (
    "SELECT t.id, t.cost, r.amount FROM trips t JOIN receipts r ON r.trip_id = t.id WHERE t.cost <> r.amount ORDER BY 1"
)


async def listed(model: Model, folder: str) -> list[str]:
    text = await model.call("list_directory", path=folder)
    return [f"{folder}/{line.removeprefix('[FILE] ')}" for line in text.splitlines()]


async def todos(model: Model, world: World) -> Any:
    names = await listed(model, f"{world.files}/notes")
    return dict(Counter(TODO.findall(await model.call_all("read_multiple_files", paths=names))))


async def errors(model: Model, world: World) -> Any:
    names = await listed(model, f"{world.files}/logs")
    text = await model.call_all("read_multiple_files", paths=names)
    return dict(Counter(" ".join(found) for found in ERROR.findall(text)))


async def one_file(model: Model, world: World) -> Any:
    return (await model.call("read_text_file", path=f"{world.files}/notes/meeting-03.md")).splitlines()[0]


async def checkout_commits(model: Model, world: World) -> Any:
    log = await model.call("git_log", repo_path=str(world.repository), max_count=50)
    found: Counter[str] = Counter()
    for commit in re.findall(r"Commit: (\w+)", log):
        shown = await model.call("git_show", repo_path=str(world.repository), revision=commit)
        if "+++ checkout.py" in shown:
            found[re.findall(r"Author: ([^<]+) <", shown)[0]] += 1
    return dict(found)


async def status(model: Model, world: World) -> Any:
    return modified(await model.call("git_status", repo_path=str(world.repository)))


def modified(text: str) -> list[str]:
    return re.findall(r"modified: +(\S+)", text)


async def without_manager(model: Model, _: World) -> Any:
    graph = await model.call("read_graph")
    managed = {one["from"] for one in graph["relations"] if one["relationType"] == "reports_to"}
    return [one["name"] for one in graph["entities"] if one["entityType"] == "person" and one["name"] not in managed]


async def without_manager_selected(model: Model, _: World) -> Any:
    part = "[entities[?entityType == 'person'].name, relations[?relationType == 'reports_to'].from]"
    people, managed = await model.call("read_graph", part)
    return [name for name in people if name not in managed]


async def without_key(model: Model, _: World) -> Any:
    found = []
    for table in ast.literal_eval(await model.call("list_tables")):
        columns = ast.literal_eval(await model.call("describe_table", table_name=table["name"]))
        if not any(column["pk"] for column in columns):
            found.append(table["name"])
    return found


async def mismatch(model: Model, _: World) -> Any:
    return numbers(await model.call("read_query", query=MISMATCH))


def numbers(rows: Any) -> Any:
    return [row["id"] for row in literal(rows)]


def literal(rows: Any) -> Any:
    """Rows of the sqlite server, which writes them as Python does."""
    return ast.literal_eval(rows) if isinstance(rows, str) else rows


async def products(model: Model, world: World) -> list[tuple[str, int, int]]:
    """Read the page of every product: its name, price and stock."""
    sitemap = await model.call("fetch", url=f"{world.site}/sitemap.txt")
    found = []
    for name in re.findall(r"/(\S+)\.html", sitemap):
        text = await model.call("fetch", url=f"{world.site}/{name}.html")
        found.append((name, int(PRICE.findall(text)[0]), int(STOCK.findall(text)[0])))
    return found


async def cheapest(model: Model, world: World) -> Any:
    return min((price, name) for name, price, stock in await products(model, world) if stock)[1]


async def hours(model: Model, world: World) -> Any:
    return "Saturday 10 to 14" in await model.call("fetch", url=f"{world.site}/hours.html")


TASKS = (
    Task(
        name="to-dos in notes",
        asked="How many TODOs does each person have in the notes in $files/notes?",
        servers=("filesystem",),
        search=("list the files of a folder; read multiple files",),
        uses=("list_directory", "read_multiple_files"),
        one_by_one=todos,
        script=r"""
import re
names = re.findall(r"\[FILE\] (.+)", filesystem.list_directory(path="$files/notes")["content"])
text = filesystem.read_multiple_files(paths=["$files/notes/" + n for n in names])["content"]
count = {}
for who in re.findall(r"TODO\((\w+)\)", text):
    count[who] = count.get(who, 0) + 1
count
""",
        answer={"Carla": 1, "Hugo": 2, "Farid": 2, "Karla": 3, "Ines": 1, "Mara": 2, "Paul": 2, "Nils": 1, "Ben": 1},
    ),
    Task(
        name="errors in logs",
        asked="How many errors of each code does each service have in the logs in $files/logs?",
        servers=("filesystem",),
        search=("list the files of a folder; read multiple files",),
        uses=("list_directory", "read_multiple_files"),
        one_by_one=errors,
        script=r"""
import re
names = re.findall(r"\[FILE\] (.+)", filesystem.list_directory(path="$files/logs")["content"])
text = filesystem.read_multiple_files(paths=["$files/logs/" + n for n in names])["content"]
count = {}
for service, code in re.findall(r" ERROR (\w+) .*code=(E\d+)", text):
    count[service + " " + code] = count.get(service + " " + code, 0) + 1
count
""",
        answer=ERRORS,
    ),
    Task(
        name="one file (1 call)",
        asked="Read me $files/notes/meeting-03.md.",
        servers=("filesystem",),
        search=("read a text file",),
        uses=("read_text_file",),
        one_by_one=one_file,
        script='filesystem.read_text_file(path="$files/notes/meeting-03.md")["content"]',
        reads=lambda text: text.splitlines()[0],
        answer="# Meeting 3: shop redesign",
    ),
    Task(
        name="commits to a file",
        asked="Who changed checkout.py in the repository $repo, and how often?",
        servers=("git",),
        search=("git log; show a commit",),
        uses=("git_log", "git_show"),
        one_by_one=checkout_commits,
        script=r"""
import re
ids = re.findall(r"Commit: (\w+)", git.git_log(repo_path="$repo", max_count=50))
count = {}
for shown in parallel("git_show", [{"repo_path": "$repo", "revision": i} for i in ids]):
    if "+++ checkout.py" in shown:
        who = re.search(r"Author: ([^<]+) <", shown).group(1)
        count[who] = count.get(who, 0) + 1
count
""",
        answer={"Ada Almeida": 7, "Ben Berger": 1},
    ),
    Task(
        name="git status (1 call)",
        asked="What is not committed in $repo?",
        servers=("git",),
        search=("git status",),
        uses=("git_status",),
        one_by_one=status,
        script='git.git_status(repo_path="$repo")',
        reads=modified,
        answer=["cart.py"],
    ),
    Task(
        name="people without a manager",
        asked="Who in our knowledge graph reports to nobody?",
        servers=("memory",),
        search=("read the knowledge graph",),
        uses=("read_graph",),
        one_by_one=without_manager,
        select=without_manager_selected,
        script="""
g = memory.read_graph()
managed = {r["from"] for r in g["relations"] if r["relationType"] == "reports_to"}
[e["name"] for e in g["entities"] if e["entityType"] == "person" and e["name"] not in managed]
""",
        answer=["Ada", "Jakob"],
    ),
    Task(
        name="tables without a key",
        asked="Which tables of the trips database have no primary key?",
        servers=("sqlite",),
        search=("list the tables of the trips sqlite database; describe_table of sqlite",),
        uses=("list_tables", "describe_table"),
        one_by_one=without_key,
        script="""
import json
def rows(text):
    return json.loads(text.replace("'", '"').replace("None", "null"))
names = [t["name"] for t in rows(sqlite.list_tables())]
[n for n in names if not any(c["pk"] for c in rows(sqlite.describe_table(table_name=n)))]
""",
        answer=["receipts", "old_trips"],
    ),
    Task(
        name="wrong receipts (1 call)",
        asked="For which trips in the trips database do the receipts not add up to the cost?",
        servers=("sqlite",),
        search=("run a SELECT query on sqlite",),
        uses=("read_query",),
        one_by_one=mismatch,
        script=f'sqlite.read_query(query="{MISMATCH}")',
        reads=numbers,
        answer=[7, 14, 21, 28, 35, 42, 49, 56],
    ),
    Task(
        name="cheapest in stock",
        asked="What is the cheapest product in $site/sitemap.txt that is in stock?",
        servers=("fetch",),
        search=("fetch a URL from the internet",),
        uses=("fetch",),
        one_by_one=cheapest,
        script=r"""
import re
names = re.findall(r"/(\S+)\.html", fetch.fetch(url="$site/sitemap.txt"))
texts = parallel("fetch", [{"url": f"$site/{name}.html"} for name in names])
found = []
for name, text in zip(names, texts):
    if "In stock: 0" not in text:
        found.append((int(re.search(r"Price: (\d+)", text).group(1)), name))
min(found)[1]
""",
        answer=min((price, slug(name)) for name, price, stock in PRODUCTS if stock)[1],
    ),
    Task(
        name="opening hours (1 call)",
        asked="When is the shop open, according to $site/hours.html?",
        servers=("fetch",),
        search=("fetch a URL from the internet",),
        uses=("fetch",),
        one_by_one=hours,
        script='fetch.fetch(url="$site/hours.html")',
        reads=lambda text: "Saturday 10 to 14" in text,
        answer=True,
    ),
)
