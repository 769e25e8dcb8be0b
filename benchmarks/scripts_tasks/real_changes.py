"""Tasks that change something on real servers: files, a database, a knowledge graph, and from one to another."""

from __future__ import annotations

from typing import Any

from benchmarks.scripts_tasks.model import Model
from benchmarks.scripts_tasks.real import listed, literal, products
from benchmarks.scripts_tasks.task import Task
from benchmarks.scripts_tasks.world import World

INSERT = "INSERT INTO suppliers VALUES"


async def rename(model: Model, world: World) -> Any:
    names = await listed(model, f"{world.files}/drafts")
    for name in names:
        await model.call("move_file", source=name, destination=name.replace(".txt", ".md"))
    return len(names)


async def import_suppliers(model: Model, world: World) -> Any:
    text = await model.call("read_text_file", path=f"{world.files}/data/suppliers.csv")
    rows = [line.split(",") for line in text.splitlines()[1:]]
    await model.call("create_table", query="CREATE TABLE suppliers (id INTEGER, name TEXT, city TEXT, rating INTEGER)")
    values = ", ".join(f"({number}, '{name}', '{city}', {rating})" for number, name, city, rating in rows)
    done = await model.call("write_query", query=f"{INSERT} {values}")
    return affected(done)


def affected(rows: Any) -> Any:
    return literal(rows)[0]["affected_rows"]


async def price_list(model: Model, world: World) -> Any:
    lines = [f"{name},{price},{stock}" for name, price, stock in await products(model, world)]
    content = "\n".join(["name,price,stock", *lines]) + "\n"
    await model.call("write_file", path=f"{world.files}/data/prices.csv", content=content)
    return (world.files / "data" / "prices.csv").read_text(encoding="utf-8").count("\n")


async def remember_authors(model: Model, _: World) -> Any:
    relations, authors = [], set()
    for page in (await model.call("list_pages"))["pages"]:
        about = await model.call("page_metadata", url=page["url"])
        authors.add(about["author"])
        relations.append({"from": about["author"], "to": about["title"], "relationType": "wrote"})
    people = [{"name": name, "entityType": "author", "observations": []} for name in sorted(authors)]
    await model.call("create_entities", entities=people)
    return len(await model.call("create_relations", relations=relations))


async def remember_authors_selected(model: Model, _: World) -> Any:
    relations, authors = [], set()
    for url in await model.call("list_pages", "pages[].url"):
        author, title = await model.call("page_metadata", "[author, title]", url=url)
        authors.add(author)
        relations.append({"from": author, "to": title, "relationType": "wrote"})
    people = [{"name": name, "entityType": "author", "observations": []} for name in sorted(authors)]
    await model.call("create_entities", "length(entities)", entities=people)
    return await model.call("create_relations", "length(relations)", relations=relations)


async def remember_one(model: Model, _: World) -> Any:
    new = [{"entityName": "Ada", "contents": ["Leads the checkout project"]}]
    return added(await model.call("add_observations", observations=new))


def added(result: Any) -> Any:
    """The server's text is a list, its structured content an object with that list."""
    results = result["results"] if isinstance(result, dict) else result
    return results[0]["addedObservations"]


TASKS = (
    Task(
        name="rename drafts",
        asked="Rename all .txt files in $files/drafts to .md.",
        servers=("filesystem",),
        search=("list the files of a folder; rename a file",),
        uses=("list_directory", "move_file"),
        one_by_one=rename,
        script=r"""
import re
names = re.findall(r"\[FILE\] (.+)\.txt", filesystem.list_directory(path="$files/drafts")["content"])
for n in names:
    filesystem.move_file(source=f"$files/drafts/{n}.txt", destination=f"$files/drafts/{n}.md")
len(names)
""",
        answer=9,
        may_change=("move_file",),
    ),
    Task(
        name="file into a database",
        asked="Put $files/data/suppliers.csv into a new table suppliers of the trips database.",
        servers=("filesystem", "sqlite"),
        search=("read a text file; create a table in sqlite; write_query of sqlite",),
        uses=("read_text_file", "create_table", "write_query"),
        one_by_one=import_suppliers,
        script="""
text = filesystem.read_text_file(path="$files/data/suppliers.csv")["content"]
rows = [line.split(",") for line in text.strip().split("\\n")[1:]]
sqlite.create_table(query="CREATE TABLE suppliers (id INTEGER, name TEXT, city TEXT, rating INTEGER)")
values = ", ".join(f"({i}, '{name}', '{city}', {rating})" for i, name, city, rating in rows)
sqlite.write_query(query="INSERT INTO suppliers VALUES " + values)
""",
        reads=affected,
        answer=40,
        may_change=("create_table", "write_query"),
    ),
    Task(
        name="web site into a file",
        asked="Write name, price and stock of every product in $site/sitemap.txt to $files/data/prices.csv.",
        servers=("fetch", "filesystem"),
        search=("fetch a URL from the internet; write a file",),
        uses=("fetch", "write_file"),
        one_by_one=price_list,
        script=r"""
import re
names = re.findall(r"/(\S+)\.html", fetch.fetch(url="$site/sitemap.txt"))
texts = parallel("fetch", [{"url": f"$site/{name}.html"} for name in names])
lines = ["name,price,stock"]
for name, text in zip(names, texts):
    price, stock = re.search(r"Price: (\d+)", text), re.search(r"In stock: (\d+)", text)
    lines.append(f"{name},{price.group(1)},{stock.group(1)}")
filesystem.write_file(path="$files/data/prices.csv", content="\n".join(lines) + "\n")
len(lines)
""",
        answer=13,
        may_change=("write_file",),
    ),
    Task(
        name="remember authors",
        asked="Remember in the knowledge graph who wrote which page.",
        servers=("web", "memory"),
        search=("list pages; author and length of a page; create entities; create relations",),
        uses=("list_pages", "page_metadata", "create_entities", "create_relations"),
        one_by_one=remember_authors,
        select=remember_authors_selected,
        script="""
about = parallel("page_metadata", [{"url": p["url"]} for p in web.list_pages()["pages"]])
names = sorted({a["author"] for a in about})
memory.create_entities(entities=[{"name": n, "entityType": "author", "observations": []} for n in names])
wrote = [{"from": a["author"], "to": a["title"], "relationType": "wrote"} for a in about]
len(memory.create_relations(relations=wrote)["relations"])
""",
        answer=25,
        may_change=("create_entities", "create_relations"),
    ),
    Task(
        name="remember a fact (1 call)",
        asked="Remember that Ada leads the checkout project.",
        servers=("memory",),
        search=("add an observation to an entity",),
        uses=("add_observations",),
        one_by_one=remember_one,
        script='memory.add_observations(observations=[{"entityName": "Ada", '
        '"contents": ["Leads the checkout project"]}])',
        reads=added,
        answer=["Leads the checkout project"],
        may_change=("add_observations",),
    ),
)
