"""Tasks on the demo servers sql and web, and one that also takes the kanban server."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from benchmarks.scripts_tasks.model import Model
from benchmarks.scripts_tasks.task import Task
from benchmarks.scripts_tasks.world import World

BY_STATUS = "SELECT status, count(*) FROM orders GROUP BY status"
LOW_STOCK = "SELECT name, stock FROM products WHERE stock < 8 ORDER BY stock, name"


async def by_status(model: Model, _: World) -> Any:
    return dict((await model.call("secureDatabaseQuery", queryDescription=BY_STATUS))["data"])


async def empty_values(model: Model, _: World) -> Any:
    found = {}
    for table in (await model.call("listTables"))["tables"]:
        statistics = await model.call("tableStatistics", tableName=table["name"])
        for column in statistics["columns"]:
            if column["filled"] < statistics["rowCount"]:
                found[f"{table['name']}.{column['name']}"] = statistics["rowCount"] - column["filled"]
    return found


async def empty_values_selected(model: Model, _: World) -> Any:
    found: dict[str, int] = {}
    for table in await model.call("listTables", "tables[].name"):
        part = "[rowCount, columns[].[name, filled]]"
        rows, columns = await model.call("tableStatistics", part, tableName=table)
        found |= {f"{table}.{name}": rows - filled for name, filled in columns if filled < rows}
    return found


async def mentions(model: Model, _: World) -> Any:
    found = {}
    for page in (await model.call("list_pages"))["pages"]:
        total = (await model.call("find_in_page", url=page["url"], phrase="water"))["total"]
        if total:
            found[page["title"]] = total
    return found


async def mentions_selected(model: Model, _: World) -> Any:
    found = {}
    for url, title in await model.call("list_pages", "pages[].[url, title]"):
        total = await model.call("find_in_page", "total", url=url, phrase="water")
        if total:
            found[title] = total
    return found


async def authors(model: Model, _: World) -> Any:
    words: dict[str, int] = {}
    for page in (await model.call("list_pages"))["pages"]:
        about = await model.call("page_metadata", url=page["url"])
        words[about["author"]] = words.get(about["author"], 0) + about["word_count"]
    return words


async def authors_selected(model: Model, _: World) -> Any:
    words: dict[str, int] = {}
    for url in await model.call("list_pages", "pages[].url"):
        author, count = await model.call("page_metadata", "[author, word_count]", url=url)
        words[author] = words.get(author, 0) + count
    return words


async def orphans(model: Model, _: World) -> Any:
    found = []
    for page in (await model.call("list_pages"))["pages"]:
        links = await model.call("extract_links", url=page["url"])
        found += [] if links["linked_from"] else [page["title"]]
    return found


async def orphans_selected(model: Model, _: World) -> Any:
    found = []
    for url, title in await model.call("list_pages", "pages[].[url, title]"):
        if not await model.call("extract_links", "length(linked_from)", url=url):
            found.append(title)
    return found


async def one_page(model: Model, _: World) -> Any:
    return "Camellia sinensis" in (await model.call("fetch_page", url="tea"))["content"]


async def alike(model: Model, _: World) -> Any:
    pages = (await model.call("list_pages", topic="food"))["pages"]
    best: tuple[float, Any] = (-1.0, None)
    for one, other in combinations(pages, 2):
        likeness = (await model.call("compare_pages", url=one["url"], other_url=other["url"]))["similarity"]
        best = max(best, (likeness, sorted([one["title"], other["title"]])))
    return best[1]


async def alike_selected(model: Model, _: World) -> Any:
    pages = await model.call("list_pages", "pages[].[url, title]", topic="food")
    best: tuple[float, Any] = (-1.0, None)
    for (url, title), (other_url, other_title) in combinations(pages, 2):
        likeness = await model.call("compare_pages", "similarity", url=url, other_url=other_url)
        best = max(best, (likeness, sorted([title, other_title])))
    return best[1]


async def reorder_cards(model: Model, _: World) -> Any:
    columns = (await model.call("list_columns", board_id=1))["columns"]
    ideas = next(one["column_id"] for one in columns if one["name"] == "Ideas")
    rows = (await model.call("secureDatabaseQuery", queryDescription=LOW_STOCK))["data"]
    for name, stock in rows:
        await model.call("create_card", title=f"Reorder {name} ({stock} left)", column_id=ideas)
    return len(rows)


async def reorder_cards_selected(model: Model, _: World) -> Any:
    ideas = await model.call("list_columns", "columns[?name == 'Ideas'].column_id | [0]", board_id=1)
    rows = await model.call("secureDatabaseQuery", "data", queryDescription=LOW_STOCK)
    for name, stock in rows:
        await model.call("create_card", "card.card_id", title=f"Reorder {name} ({stock} left)", column_id=ideas)
    return len(rows)


READING = (
    Task(
        name="orders by status (1 call)",
        asked="How many orders of the shop are there by status?",
        servers=("sql",),
        search=("query the shop database",),
        uses=("secureDatabaseQuery",),
        one_by_one=by_status,
        script=f'sql.secureDatabaseQuery(queryDescription="{BY_STATUS}")["data"]',
        reads=dict,
        answer={"cancelled": 46, "delivered": 564, "open": 15, "shipped": 15},
    ),
    Task(
        name="empty values",
        asked="Which columns of the shop database have empty values, and how many?",
        servers=("sql",),
        search=("list the tables of the shop database; count filled values of each column of a table",),
        uses=("listTables", "tableStatistics"),
        one_by_one=empty_values,
        select=empty_values_selected,
        script="""
found = {}
for table in sql.listTables()["tables"]:
    s = sql.tableStatistics(tableName=table["name"])
    for c in s["columns"]:
        if c["filled"] < s["rowCount"]:
            found[table["name"] + "." + c["name"]] = s["rowCount"] - c["filled"]
found
""",
        answer={"categories.parent_id": 3, "reviews.comment": 46},
    ),
    Task(
        name="pages about water",
        asked="Which pages mention water, and how often?",
        servers=("web",),
        search=("list all pages; find a word in a page",),
        uses=("list_pages", "find_in_page"),
        one_by_one=mentions,
        select=mentions_selected,
        script="""
pages = web.list_pages()["pages"]
hits = parallel("find_in_page", [{"url": p["url"], "phrase": "water"} for p in pages])
{p["title"]: h["total"] for p, h in zip(pages, hits) if h["total"]}
""",
        answer={
            "From sundials to atomic clocks": 1,
            "Coffee from bean to cup": 1,
            "Concrete, ancient and modern": 3,
            "What honey is made of": 3,
            "Lighthouses and their lights": 2,
            "How paper is made": 2,
            "The living soil": 2,
            "Baking with sourdough": 3,
            "Six kinds of tea from one plant": 2,
        },
    ),
    Task(
        name="words by author",
        asked="How many words did each author write on these pages?",
        servers=("web",),
        search=("list all pages; author and length of a page",),
        uses=("list_pages", "page_metadata"),
        one_by_one=authors,
        select=authors_selected,
        script="""
words = {}
for page in web.list_pages()["pages"]:
    about = web.page_metadata(url=page["url"])
    words[about["author"]] = words.get(about["author"], 0) + about["word_count"]
words
""",
        answer={
            "Nora Whitfield": 294,
            "Tomasz Lewandowski": 345,
            "Marguerite Caron": 332,
            "Leila Farahani": 466,
            "Viktor Anand": 95,
            "Amira Haddad": 223,
            "Eilidh Munro": 426,
            "Ingrid Solheim": 239,
            "Kenji Mori": 232,
            "Ruben Salas": 211,
        },
    ),
    Task(
        name="pages without links to them",
        asked="Which pages does no other page link to?",
        servers=("web",),
        search=("list all pages; links on a page and pages that link to it",),
        uses=("list_pages", "extract_links"),
        one_by_one=orphans,
        select=orphans_selected,
        script="""
pages = web.list_pages()["pages"]
links = parallel("extract_links", [{"url": p["url"]} for p in pages])
[p["title"] for p, l in zip(pages, links) if not l["linked_from"]]
""",
        answer=["Opening principles in chess", "Five knots worth knowing", "Baking with sourdough"],
    ),
    Task(
        name="one page (1 call)",
        asked="Read me the page about tea.",
        servers=("web",),
        search=("read a page",),
        uses=("fetch_page",),
        one_by_one=one_page,
        script='web.fetch_page(url="tea")["content"]',
        reads=lambda text: "Camellia sinensis" in text,
        answer=True,
    ),
    Task(
        name="pages that are alike",
        asked="Which two pages about food are the most alike?",
        servers=("web",),
        search=("list all pages of a topic; compare two pages",),
        uses=("list_pages", "compare_pages"),
        one_by_one=alike,
        select=alike_selected,
        script="""
from itertools import combinations
pages = web.list_pages(topic="food")["pages"]
pairs = list(combinations(pages, 2))
found = parallel("compare_pages", [{"url": a["url"], "other_url": b["url"]} for a, b in pairs])
scores = [f["similarity"] for f in found]
a, b = pairs[scores.index(max(scores))]
sorted([a["title"], b["title"]])
""",
        answer=["Pollination and why it matters", "What honey is made of"],
    ),
)

CHANGING = (
    Task(
        name="cards for low stock",
        asked="Make a card in Ideas of the Web Shop board (1) for each product with fewer than 8 in stock.",
        servers=("sql", "kanban"),
        search=("query the shop database; list the columns of a board; create a card",),
        uses=("secureDatabaseQuery", "list_columns", "create_card"),
        one_by_one=reorder_cards,
        select=reorder_cards_selected,
        script=f"""
columns = kanban.list_columns(board_id=1)["columns"]
ideas = [c["column_id"] for c in columns if c["name"] == "Ideas"][0]
rows = sql.secureDatabaseQuery(queryDescription="{LOW_STOCK}")["data"]
for name, stock in rows:
    kanban.create_card(title=f"Reorder {{name}} ({{stock}} left)", column_id=ideas)
len(rows)
""",
        answer=5,
        may_change=("create_card",),
    ),
)
