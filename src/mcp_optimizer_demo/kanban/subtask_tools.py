"""Tools on subtasks, the checklist of a card."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, boolean, integer, nullable, record, string
from mcp_optimizer_demo.kanban.card_fields import SUBTASK
from mcp_optimizer_demo.kanban.card_parts import add_subtask, renumber_subtasks
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import CARD_ID, MAYBE_DATE, PAGED, PAGING, SUBTASK_ID, identifier
from mcp_optimizer_demo.kanban.records import Subtask
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import paged, parse_day, subtask_view, subtasks_of
from mcp_optimizer_demo.toolserver import ADDS, DESTROYS, SETS, Arguments, ToolFault

FIELDS = SUBTASK["properties"]
SUBTASK_ROW: Schema = record(
    {
        "subtask_id": integer("Unique ID of the subtask."),
        "card_id": integer("ID of the card it belongs to."),
        "position": integer("Zero-based position in the list."),
        "description": string("What is to be done."),
        "owner_user_id": nullable(integer("ID of the user who does it, or null.")),
        "deadline": MAYBE_DATE,
        "finished_at": nullable(string("When it was finished, or null.", format="date-time")),
        "is_finished": boolean("Whether it is finished."),
    },
    required=("subtask_id", "card_id", "position", "description", "is_finished"),
)


@kanban_tool(
    "List Subtasks",
    "Get the subtasks of a card in order, with owner, deadline and whether they are finished. Give a board_id instead "
    "to get the subtasks of every card on a board, for example all open ones of one user.",
    {
        "card_id": identifier("The ID of the card whose subtasks you want. Takes precedence over board_id."),
        "board_id": identifier("The ID of the board whose subtasks you want."),
        "user_id": identifier("Only return subtasks owned by this user."),
        "is_finished": boolean("True: only finished subtasks. False: only open ones. Omit for both."),
        **PAGING,
    },
    output={**PAGED, "subtasks": array(SUBTASK_ROW, "The subtasks, by card and position.")},
)
def list_subtasks(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    if "card_id" in args:
        card_ids = [kanban.cards.get(args["card_id"]).id]
    elif "board_id" in args:
        board = kanban.boards.get(args["board_id"])
        card_ids = [card.id for card in kanban.cards if card.board_id == board.id and not card.is_archived]
    else:
        raise ToolFault("list_subtasks needs a card_id or a board_id.")
    rows = [
        subtask
        for card_id in card_ids
        for subtask in subtasks_of(kanban, card_id)
        if args.get("user_id", subtask.owner_user_id) == subtask.owner_user_id
        and args.get("is_finished", subtask.finished_at is not None) == (subtask.finished_at is not None)
    ]
    return paged(rows, args, "subtasks", subtask_view)


@kanban_tool(
    "Create Subtask",
    "Add a subtask (checklist item) to a card. Use subtasks for small steps of one card; create a child card with "
    "set_card_parent when the step deserves a life on the board of its own.",
    {"card_id": CARD_ID, **FIELDS},
    required=("card_id", "description"),
    hints=ADDS,
    output={"subtask": SUBTASK_ROW},
)
def create_subtask(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    subtask = add_subtask(kanban, card.id, args)
    return {"subtask": subtask_view(kanban.subtasks.get(subtask.id))}


@kanban_tool(
    "Update Subtask",
    "Change a subtask: its text, owner, deadline or position, or mark it finished or open again. Only the fields you "
    "pass are changed; pass null to take off the owner or the deadline.",
    {
        "card_id": CARD_ID,
        "subtask_id": SUBTASK_ID,
        "description": FIELDS["description"],
        "owner_user_id": nullable(identifier("The ID of the user who does the subtask, or null for nobody.")),
        "deadline": nullable(string("The day it must be finished (YYYY-MM-DD), or null.", format="date")),
        "is_finished": boolean("True marks the subtask finished now, false opens it again."),
        "position": integer("New zero-based position in the list.", minimum=0),
    },
    required=("card_id", "subtask_id"),
    hints=SETS,
    output={"subtask": SUBTASK_ROW},
)
def update_subtask(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    subtask = subtask_on_card(kanban, args["card_id"], args["subtask_id"])
    changes: dict[str, Any] = {name: args[name] for name in ("description", "owner_user_id") if name in args}
    if changes.get("owner_user_id") is not None:
        kanban.users.get(changes["owner_user_id"])
    if "deadline" in args:
        changes["deadline"] = parse_day("deadline", args["deadline"]) if args["deadline"] else None
    if "is_finished" in args:
        changes["finished_at"] = (subtask.finished_at or kanban.now()) if args["is_finished"] else None
    subtask = kanban.subtasks.put(replace(subtask, **changes))
    if "position" in args:
        others = [other for other in subtasks_of(kanban, subtask.card_id) if other.id != subtask.id]
        renumber_subtasks(kanban, [*others[: args["position"]], subtask, *others[args["position"] :]])
    kanban.record(subtask.card_id, "subtask_updated", subtask.description)
    return {"subtask": subtask_view(kanban.subtasks.get(subtask.id))}


@kanban_tool(
    "Delete Subtask",
    "Delete a subtask from a card. The subtasks below it move up. This cannot be undone.",
    {"card_id": CARD_ID, "subtask_id": SUBTASK_ID},
    required=("card_id", "subtask_id"),
    hints=DESTROYS,
)
def delete_subtask(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    subtask = subtask_on_card(kanban, args["card_id"], args["subtask_id"])
    kanban.subtasks.remove(subtask.id)
    renumber_subtasks(kanban, subtasks_of(kanban, subtask.card_id))
    kanban.record(subtask.card_id, "subtask_deleted", subtask.description)
    return {"deleted_subtask_id": subtask.id, "remaining": len(subtasks_of(kanban, subtask.card_id))}


def subtask_on_card(kanban: Kanban, card_id: int, subtask_id: int) -> Subtask:
    card, subtask = kanban.cards.get(card_id), kanban.subtasks.get(subtask_id)
    if subtask.card_id != card.id:
        raise ToolFault(
            f"Subtask {subtask_id} belongs to card {subtask.card_id}, not to card {card_id}. Call list_subtasks."
        )
    return subtask


TOOLS = (list_subtasks, create_subtask, update_subtask, delete_subtask)
