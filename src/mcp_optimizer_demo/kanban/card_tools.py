"""The tools that place or remove a card: move_card, assign_card, archive_card, delete_card."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import boolean, integer, nullable, string
from mcp_optimizer_demo.kanban.card_changes import check_member
from mcp_optimizer_demo.kanban.card_parts import delete_everything_on
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import (
    ACTING_USER_ID,
    CARD_ID,
    EXCEEDING_REASON,
    IGNORE_WIP_LIMIT,
    POSITION,
    identifier,
)
from mcp_optimizer_demo.kanban.placement import check_wip_limits, close_gap, enter_cell, exceeding_reason, target_cell
from mcp_optimizer_demo.kanban.placement import move_card as place_card
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import card_row
from mcp_optimizer_demo.toolserver import DESTROYS, SETS, Arguments, ToolFault


@kanban_tool(
    "Move Card",
    "Move a card to another column, lane or position, also across boards. The cards below the new position shift "
    "down and the gap at the old place is closed. The move is recorded and feeds the flow analytics. Refused when the "
    "target column or lane has reached its WIP limit, unless ignore_wip_limit and exceeding_reason are given. Call "
    "get_board_structure to find the IDs.",
    {
        "card_id": CARD_ID,
        "column_id": identifier(
            "The ID of the column to move to. Pass the current column to change only the position."
        ),
        "lane_id": identifier(
            "The ID of the lane to move to; must be on the same board as the column. Defaults to the current lane, or "
            "to the top lane when the card changes board."
        ),
        "position": POSITION,
        "board_id": identifier("The board you expect the target column to be on; an error is returned when it is not."),
        "user_id": ACTING_USER_ID,
        "ignore_wip_limit": IGNORE_WIP_LIMIT,
        "exceeding_reason": EXCEEDING_REASON,
    },
    required=("card_id", "column_id"),
    hints=SETS,
    output={
        "card_id": integer("ID of the card."),
        "from_column_id": integer("Column the card was in."),
        "to_column_id": integer("Column the card is in now."),
        "lane_id": integer("Lane the card is in now."),
        "position": integer("Zero-based position the card has now."),
        "board_id": integer("Board the card is on now."),
        "is_finished": boolean('Whether the card is in a column of the section "done" now.'),
    },
)
def move_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    column = kanban.columns.get(args["column_id"])
    if args.get("board_id", column.board_id) != column.board_id:
        raise ToolFault(f"Column {column.id} is on board {column.board_id}, not on board {args['board_id']}.")
    lane_id = args.get("lane_id", card.lane_id if card.board_id == column.board_id else None)
    column, lane = target_cell(kanban, column.id, lane_id)
    reason = exceeding_reason(args.get("ignore_wip_limit", False), args.get("exceeding_reason"))
    user = kanban.users.get(args.get("user_id", kanban.acting_user_id))
    moved = place_card(kanban, card, column, lane, args.get("position"), reason, user.id)
    return {
        "card_id": card.id,
        "from_column_id": card.column_id,
        "to_column_id": moved.column_id,
        "lane_id": moved.lane_id,
        "position": moved.position,
        "board_id": moved.board_id,
        "is_finished": column.section == "done",
    }


@kanban_tool(
    "Assign Card",
    "Make a user the owner of a card, or take the owner off with user_id null. With as_co_owner the user is added to "
    "(or with remove taken from) the co-owners instead, and the owner stays. The user must be an enabled member of "
    "the board's workspace.",
    {
        "card_id": CARD_ID,
        "user_id": nullable(identifier("The ID of the user, as returned by list_users, or null for nobody.")),
        "as_co_owner": boolean("Set to true to change the co-owners instead of the owner.", default=False),
        "remove": boolean("With as_co_owner: set to true to remove the user.", default=False),
    },
    required=("card_id", "user_id"),
    hints=SETS,
)
def assign_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card, user_id = kanban.cards.get(args["card_id"]), args["user_id"]
    if user_id is not None:
        check_member(kanban, user_id, kanban.boards.get(card.board_id))
    if not args.get("as_co_owner", False):
        card = replace(card, owner_user_id=user_id)
    elif user_id is None:
        raise ToolFault("as_co_owner needs the user_id of the co-owner to add or remove.")
    else:
        others = tuple(other for other in card.co_owner_ids if other != user_id)
        card = replace(card, co_owner_ids=others if args.get("remove", False) else (*others, user_id))
    kanban.cards.put(replace(card, updated_at=kanban.now()))
    kanban.record(card.id, "assigned", f"owner {card.owner_user_id}, co-owners {list(card.co_owner_ids)}")
    return {"card_id": card.id, "owner_user_id": card.owner_user_id, "co_owner_ids": list(card.co_owner_ids)}


@kanban_tool(
    "Archive Card",
    "Take a card off the board without losing it, or put an archived card back with restore. Archived cards do not "
    "count against WIP limits and do not appear in lists unless asked for. A restored card goes to the bottom of the "
    "column and lane it was in, as long as the WIP limit allows it.",
    {
        "card_id": CARD_ID,
        "restore": boolean("Set to true to put an archived card back on its board.", default=False),
        "reason": string("Why the card is archived or restored. Kept in the history.", maxLength=500),
    },
    required=("card_id",),
    hints=DESTROYS,
)
def archive_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card, restore = kanban.cards.get(args["card_id"]), args.get("restore", False)
    if card.is_archived == (not restore):
        raise ToolFault(f"Card {card.id} is {'archived' if card.is_archived else 'not archived'} already.")
    card = kanban.cards.put(replace(card, is_archived=not restore, updated_at=kanban.now()))
    if restore:
        column, lane = target_cell(kanban, card.column_id, card.lane_id)
        check_wip_limits(kanban, card.id, column, lane, "")
        card = enter_cell(kanban, card, column, lane, None)
    else:
        close_gap(kanban, card.column_id, card.lane_id)
    kanban.record(card.id, "restored" if restore else "archived", args.get("reason", ""))
    return {"card": card_row(kanban, card), "is_archived": card.is_archived}


@kanban_tool(
    "Delete Card",
    "Delete a card with its subtasks, comments, links, blockers and recorded moves. This cannot be undone and changes "
    "past analytics; prefer archive_card. As a safeguard the title of the card must be repeated in confirm_title.",
    {
        "card_id": CARD_ID,
        "confirm_title": string("The exact current title of the card.", minLength=1, maxLength=250),
    },
    required=("card_id", "confirm_title"),
    hints=DESTROYS,
)
def delete_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    if args["confirm_title"] != card.title:
        raise ToolFault(f"confirm_title does not match: card {card.id} is titled '{card.title}'. Nothing was deleted.")
    delete_everything_on(kanban, card.id)
    kanban.cards.remove(card.id)
    close_gap(kanban, card.column_id, card.lane_id)
    return {"deleted_card_id": card.id, "title": card.title}


TOOLS = (move_card, assign_card, archive_card, delete_card)
