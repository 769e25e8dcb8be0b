"""Tasks on the kanban demo server: questions about several boards and many cards."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.scripts_tasks.model import Model
from benchmarks.scripts_tasks.task import Task
from benchmarks.scripts_tasks.world import World


async def sections(model: Model, _: World) -> Any:
    found = {}
    for board in (await model.call("list_boards"))["boards"]:
        cards = (await model.call("list_cards", board_id=board["board_id"]))["cards"]
        found[board["name"]] = dict(Counter(card["section"] for card in cards))
    return found


async def sections_selected(model: Model, _: World) -> Any:
    found = {}
    for number, name in await model.call("list_boards", "boards[].[board_id, name]"):
        found[name] = await model.call("list_cards", "count_by(cards, &section)", board_id=number)
    return found


async def open_subtasks(model: Model, _: World) -> Any:
    active = {
        card["card_id"]: card["title"] for card in (await model.call("list_cards", sections=["progress"]))["cards"]
    }
    found = {}
    for board in (await model.call("list_boards"))["boards"]:
        for one in (await model.call("list_subtasks", board_id=board["board_id"], is_finished=False))["subtasks"]:
            if one["card_id"] in active:
                found[one["description"]] = active[one["card_id"]]
    return found


async def open_subtasks_selected(model: Model, _: World) -> Any:
    active = dict(await model.call("list_cards", "cards[].[card_id, title]", sections=["progress"]))
    found = {}
    for number in await model.call("list_boards", "boards[].board_id"):
        part = "subtasks[].[card_id, description]"
        for card, text in await model.call("list_subtasks", part, board_id=number, is_finished=False):
            if card in active:
                found[text] = active[card]
    return found


async def workload(model: Model, _: World) -> Any:
    sizes = {}
    for user in (await model.call("list_users"))["users"]:
        sizes[user["name"]] = (await model.call("get_user_workload", user_id=user["user_id"]))["total_size"]
    return sorted(sizes.items(), key=lambda one: -one[1])[:3]


async def workload_selected(model: Model, _: World) -> Any:
    sizes = {}
    for number, name in await model.call("list_users", "users[].[user_id, name]"):
        sizes[name] = await model.call("get_user_workload", "total_size", user_id=number)
    return sorted(sizes.items(), key=lambda one: -one[1])[:3]


async def blocked(model: Model, _: World) -> Any:
    found = []
    for one in (await model.call("list_blocked_cards"))["blocked"]:
        owner = await model.call("get_user", user_id=one["card"]["owner_user_id"])
        found.append([one["card"]["title"], one["reason"], owner["email"]])
    return found


async def blocked_selected(model: Model, _: World) -> Any:
    part = "blocked[].[card.title, reason, card.owner_user_id]"
    found = []
    for title, reason, owner in await model.call("list_blocked_cards", part):
        found.append([title, reason, await model.call("get_user", "email", user_id=owner)])
    return found


async def movers(model: Model, _: World) -> Any:
    count: Counter[str] = Counter()
    for card in (await model.call("list_cards", board_id=1, sections=["progress"]))["cards"]:
        events = (await model.call("get_card_history", card_id=card["card_id"]))["events"]
        count.update(event["user_name"] for event in events if event["action"] == "moved")
    return dict(count)


async def movers_selected(model: Model, _: World) -> Any:
    count: Counter[str] = Counter()
    for number in await model.call("list_cards", "cards[].card_id", board_id=1, sections=["progress"]):
        part = "count_by(events[?action == 'moved'], &user_name)"
        count.update(await model.call("get_card_history", part, card_id=number))
    return dict(count)


async def links(model: Model, _: World) -> Any:
    found = []
    for card in (await model.call("list_cards", board_id=1))["cards"]:
        linked = (await model.call("list_card_links", card_id=card["card_id"]))["links"]
        found += [[card["title"], link["type"], link["linked_title"]] for link in linked]
    return found


async def links_selected(model: Model, _: World) -> Any:
    found = []
    for number, title in await model.call("list_cards", "cards[].[card_id, title]", board_id=1):
        for kind, other in await model.call("list_card_links", "links[].[type, linked_title]", card_id=number):
            found.append([title, kind, other])
    return found


async def one_card(model: Model, _: World) -> Any:
    return about_card(await model.call("get_card", card_id=119))


def about_card(card: Any) -> Any:
    return [card["title"], len(card["comments"]), card["owner_user_id"]]


TASKS = (
    Task(
        name="cards by section",
        asked="How many cards does each board have in each section?",
        servers=("kanban",),
        search=("list the boards; list the cards of a board",),
        uses=("list_boards", "list_cards"),
        one_by_one=sections,
        select=sections_selected,
        script="""
found = {}
for board in kanban.list_boards()["boards"]:
    count = {}
    for card in kanban.list_cards(board_id=board["board_id"])["cards"]:
        count[card["section"]] = count.get(card["section"], 0) + 1
    found[board["name"]] = count
found
""",
        answer={
            "Web Shop": {"backlog": 4, "requested": 3, "progress": 7, "done": 9},
            "Platform": {"backlog": 3, "requested": 3, "progress": 3, "done": 6},
            "Marketing Campaigns": {"backlog": 3, "requested": 3, "progress": 3, "done": 3},
            "Portfolio": {"backlog": 2, "requested": 1, "progress": 2, "done": 1},
        },
    ),
    Task(
        name="open subtasks",
        asked="Which subtasks are still open on cards in progress, and of which card?",
        servers=("kanban",),
        search=("list the boards; list cards; list subtasks",),
        uses=("list_boards", "list_cards", "list_subtasks"),
        one_by_one=open_subtasks,
        select=open_subtasks_selected,
        script="""
active = {c["card_id"]: c["title"] for c in kanban.list_cards(sections=["progress"])["cards"]}
found = {}
for board in kanban.list_boards()["boards"]:
    for s in kanban.list_subtasks(board_id=board["board_id"], is_finished=False)["subtasks"]:
        if s["card_id"] in active:
            found[s["description"]] = active[s["card_id"]]
found
""",
        answer={
            "Preselect it in the checkout": "Remember the last used delivery address",
            "Test with several addresses": "Remember the last used delivery address",
            "Connect the payment interface": "Let customers pay with instant bank transfer",
            "Announce the maintenance window": "Upgrade the database to the next major version",
            "Write the landing page": "Spring garden furniture campaign",
        },
    ),
    Task(
        name="workload",
        asked="Which three people have the most unfinished work, by size?",
        servers=("kanban",),
        search=("list the users; workload of a user",),
        uses=("list_users", "get_user_workload"),
        one_by_one=workload,
        select=workload_selected,
        script="""
users = kanban.list_users()["users"]
loads = parallel("get_user_workload", [{"user_id": u["user_id"]} for u in users])
sizes = [(u["name"], w["total_size"]) for u, w in zip(users, loads)]
sorted(sizes, key=lambda s: -s[1])[:3]
""",
        answer=[("Elena Marković", 100), ("Sofía Álvarez", 43), ("Mei Tanaka", 26)],
    ),
    Task(
        name="blocked cards",
        asked="Which cards are blocked, why, and whom do I write to (the owner's mail)?",
        servers=("kanban",),
        search=("list blocked cards with the reason; get a user",),
        uses=("list_blocked_cards", "get_user"),
        one_by_one=blocked,
        select=blocked_selected,
        script="""
[[b["card"]["title"], b["reason"], kanban.get_user(user_id=b["card"]["owner_user_id"])["email"]]
 for b in kanban.list_blocked_cards()["blocked"]]
""",
        answer=[
            [
                "Let customers pay with instant bank transfer",
                "Waiting for the bank's test account",
                "tom@brightwater.example",
            ],
            [
                "Rotate the signing keys of the shop",
                "The hardware token is at the other office",
                "jonas@brightwater.example",
            ],
        ],
    ),
    Task(
        name="who moves cards",
        asked="For the cards in progress on the Web Shop board (1): how often did each person move one?",
        servers=("kanban",),
        search=("list cards; history of a card",),
        uses=("list_cards", "get_card_history"),
        one_by_one=movers,
        select=movers_selected,
        script="""
count = {}
for card in kanban.list_cards(board_id=1, sections=["progress"])["cards"]:
    for event in kanban.get_card_history(card_id=card["card_id"])["events"]:
        if event["action"] == "moved":
            count[event["user_name"]] = count.get(event["user_name"], 0) + 1
count
""",
        answer={"Tom Becker": 8, "Aisha Rahman": 12, "Luca Ferri": 7},
    ),
    Task(
        name="links of a board",
        asked="Which links between cards are there on the Web Shop board (1)?",
        servers=("kanban",),
        search=("list cards; list links of a card",),
        uses=("list_cards", "list_card_links"),
        one_by_one=links,
        select=links_selected,
        script="""
cards = kanban.list_cards(board_id=1)["cards"]
linked = parallel("list_card_links", [{"card_id": c["card_id"]} for c in cards])
[[c["title"], n["type"], n["linked_title"]] for c, l in zip(cards, linked) for n in l["links"]]
""",
        answer=[
            ["Show stock per warehouse", "relates_to", "Filter search results by delivery time"],
            ["Filter search results by delivery time", "relates_to", "Show stock per warehouse"],
            ["Cart is emptied after signing in", "is_duplicated_by", "Items vanish from the cart"],
            ["Items vanish from the cart", "duplicates", "Cart is emptied after signing in"],
        ],
    ),
    Task(
        name="one card (1 call)",
        asked="Show me everything about card 119.",
        servers=("kanban",),
        search=("get a card",),
        uses=("get_card",),
        one_by_one=one_card,
        script="kanban.get_card(card_id=119)",
        reads=about_card,
        answer=["Remember the last used delivery address", 2, 3],
    ),
)
