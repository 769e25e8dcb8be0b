"""Tasks on the kanban demo server: changes of many cards at once, and of one."""

from __future__ import annotations

from typing import Any

from benchmarks.scripts_tasks.model import Model
from benchmarks.scripts_tasks.task import Task
from benchmarks.scripts_tasks.world import World

CHECKLIST = ("Write the test", "Update the guide", "Ask for a review", "Tell support")


async def block_one(model: Model, _: World) -> Any:
    done = await model.call("block_card", card_id=124, reason="Waiting for the photos")
    return done["blocker"]["is_open"]


async def ask_estimates(model: Model, _: World) -> Any:
    asked = 0
    for card in (await model.call("list_cards", sections=["requested"], is_unassigned=True))["cards"]:
        text = "Who takes this card? Please estimate it by Friday."
        await model.call("create_comment", card_id=card["card_id"], text=text)
        asked += 1
    return asked


async def ask_estimates_selected(model: Model, _: World) -> Any:
    asked = 0
    for number in await model.call("list_cards", "cards[].card_id", sections=["requested"], is_unassigned=True):
        text = "Who takes this card? Please estimate it by Friday."
        await model.call("create_comment", "comment.comment_id", card_id=number, text=text)
        asked += 1
    return asked


async def checklists(model: Model, _: World) -> Any:
    made = 0
    for card in (await model.call("list_cards", board_id=1, sections=["requested"]))["cards"]:
        for text in CHECKLIST:
            await model.call("create_subtask", card_id=card["card_id"], description=text)
            made += 1
    return made


async def checklists_selected(model: Model, _: World) -> Any:
    made = 0
    for number in await model.call("list_cards", "cards[].card_id", board_id=1, sections=["requested"]):
        for text in CHECKLIST:
            await model.call("create_subtask", "subtask.subtask_id", card_id=number, description=text)
            made += 1
    return made


async def finish_tested(model: Model, _: World) -> Any:
    columns = {one["name"]: one["column_id"] for one in (await model.call("list_columns", board_id=1))["columns"]}
    moved = []
    for card in (await model.call("list_cards", column_ids=[columns["Testing"]]))["cards"]:
        await model.call("move_card", card_id=card["card_id"], column_id=columns["Done"])
        moved.append(card["title"])
    return moved


async def finish_tested_selected(model: Model, _: World) -> Any:
    columns = {name: at for at, name in await model.call("list_columns", "columns[].[column_id, name]", board_id=1)}
    moved = []
    part = "cards[].[card_id, title]"
    for number, title in await model.call("list_cards", part, column_ids=[columns["Testing"]]):
        await model.call("move_card", "is_finished", card_id=number, column_id=columns["Done"])
        moved.append(title)
    return moved


TASKS = (
    Task(
        name="block a card (1 call)",
        asked="Block card 124: we wait for the photos.",
        servers=("kanban",),
        search=("block a card",),
        uses=("block_card",),
        one_by_one=block_one,
        script='kanban.block_card(card_id=124, reason="Waiting for the photos")["blocker"]["is_open"]',
        answer=True,
        may_change=("block_card",),
    ),
    Task(
        name="ask for estimates",
        asked="Ask on every requested card that nobody owns who takes it. How many were there?",
        servers=("kanban",),
        search=("list unassigned cards; write a comment on a card",),
        uses=("list_cards", "create_comment"),
        one_by_one=ask_estimates,
        select=ask_estimates_selected,
        script="""
cards = kanban.list_cards(sections=["requested"], is_unassigned=True)["cards"]
for card in cards:
    kanban.create_comment(card_id=card["card_id"], text="Who takes this card? Please estimate it by Friday.")
len(cards)
""",
        answer=3,
        may_change=("create_comment",),
    ),
    Task(
        name="checklists",
        asked="Put our four-point checklist on each requested card of the Web Shop board (1).",
        servers=("kanban",),
        search=("list cards; add a subtask to a card",),
        uses=("list_cards", "create_subtask"),
        one_by_one=checklists,
        select=checklists_selected,
        script="""
points = ["Write the test", "Update the guide", "Ask for a review", "Tell support"]
cards = kanban.list_cards(board_id=1, sections=["requested"])["cards"]
todo = [{"card_id": c["card_id"], "description": p} for c in cards for p in points]
len(parallel("create_subtask", todo))
""",
        answer=12,
        may_change=("create_subtask",),
    ),
    Task(
        name="finish tested cards",
        asked="Everything in Testing on the Web Shop board (1) is fine: move it to Done, and name it.",
        servers=("kanban",),
        search=("list columns; list cards; move a card",),
        uses=("list_columns", "list_cards", "move_card"),
        one_by_one=finish_tested,
        select=finish_tested_selected,
        script="""
columns = {c["name"]: c["column_id"] for c in kanban.list_columns(board_id=1)["columns"]}
cards = kanban.list_cards(column_ids=[columns["Testing"]])["cards"]
for card in cards:
    kanban.move_card(card_id=card["card_id"], column_id=columns["Done"])
[c["title"] for c in cards]
""",
        answer=["Filter search results by delivery time", "Cart is emptied after signing in"],
        may_change=("move_card",),
    ),
)
