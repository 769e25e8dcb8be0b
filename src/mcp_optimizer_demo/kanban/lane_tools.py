"""Tools on the lanes (swimlanes) of a board."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, integer, record, string
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import BOARD_ID, COLOR, LANE_ID, WIP_LIMIT, identifier
from mcp_optimizer_demo.kanban.placement import move_card
from mcp_optimizer_demo.kanban.records import NEW, Lane
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import lane_view
from mcp_optimizer_demo.toolserver import ADDS, DESTROYS, SETS, Arguments, ToolFault

NAME = string('Name of the lane, e.g. "Expedite".', minLength=1, maxLength=60)
DESCRIPTION = string("Which work belongs into this lane.", maxLength=1000)
POSITION = integer("Zero-based position of the lane from the top. The lanes below it shift down by one.", minimum=0)
LANE_WIP_LIMIT = {
    **WIP_LIMIT,
    "description": 'Largest number of cards of this lane in columns of the section "progress" at the same time. '
    "0 means no limit.",
}

LANE: Schema = record(
    {
        "lane_id": integer("Unique ID of the lane."),
        "board_id": integer("ID of the board it is on."),
        "name": string("Name of the lane."),
        "position": integer("Zero-based position from the top."),
        "wip_limit": integer("Largest number of cards in progress; 0 means no limit."),
        "color": string("Color of the lane."),
        "description": string("Which work belongs into the lane."),
        "card_count": integer("Number of cards in the lane now."),
    },
    required=("lane_id", "name", "position", "wip_limit", "card_count"),
)


@kanban_tool(
    "List Lanes",
    "Get the lanes (swimlanes) of a board from top to bottom, with color, WIP limit and the number of cards in each.",
    {"board_id": BOARD_ID},
    required=("board_id",),
    output={"board_id": integer("ID of the board."), "lanes": array(LANE, "The lanes from top to bottom.")},
)
def list_lanes(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    board = kanban.boards.get(args["board_id"])
    return {"board_id": board.id, "lanes": [lane_view(kanban, lane) for lane in kanban.lanes_of(board.id)]}


@kanban_tool(
    "Create Lane",
    "Add a lane to a board. Lanes run across all columns and separate kinds of work, teams or classes of service. "
    "Without a position the lane is added at the bottom.",
    {
        "board_id": BOARD_ID,
        "name": NAME,
        "position": POSITION,
        "wip_limit": {**LANE_WIP_LIMIT, "default": 0},
        "color": COLOR,
        "description": DESCRIPTION,
    },
    required=("board_id", "name"),
    hints=ADDS,
    output={"lane": LANE},
)
def create_lane(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    board = kanban.boards.get(args["board_id"])
    others = kanban.lanes_of(board.id)
    index = min(args.get("position", len(others)), len(others))
    wip_limit, color = args.get("wip_limit", 0), args.get("color", "#D5D5D5")
    description = args.get("description", "")
    lane = kanban.lanes.add(Lane(NEW, board.id, args["name"], index, wip_limit, color, description))
    renumber_lanes(kanban, [*others[:index], lane, *others[index:]])
    return {"lane": lane_view(kanban, lane)}


@kanban_tool(
    "Update Lane",
    "Change the name, position, WIP limit, color or description of a lane. Only the fields you pass are changed; "
    "the cards in the lane stay where they are.",
    {
        "board_id": BOARD_ID,
        "lane_id": LANE_ID,
        "name": NAME,
        "position": POSITION,
        "wip_limit": LANE_WIP_LIMIT,
        "color": COLOR,
        "description": DESCRIPTION,
    },
    required=("board_id", "lane_id"),
    hints=SETS,
    output={"lane": LANE},
)
def update_lane(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    lane = lane_on_board(kanban, args["board_id"], args["lane_id"])
    if "position" in args:
        others = [other for other in kanban.lanes_of(lane.board_id) if other.id != lane.id]
        renumber_lanes(kanban, [*others[: args["position"]], lane, *others[args["position"] :]])
    changes = {name: args[name] for name in ("name", "wip_limit", "color", "description") if name in args}
    lane = kanban.lanes.put(replace(kanban.lanes.get(lane.id), **changes))
    return {"lane": lane_view(kanban, lane)}


@kanban_tool(
    "Delete Lane",
    "Delete a lane. A lane that still holds cards is only deleted when move_cards_to_lane_id names a lane of the "
    "same board that takes them over. The last lane of a board cannot be deleted. This cannot be undone.",
    {
        "board_id": BOARD_ID,
        "lane_id": LANE_ID,
        "move_cards_to_lane_id": identifier("Lane of the same board that receives the cards, archived ones too."),
    },
    required=("board_id", "lane_id"),
    hints=DESTROYS,
)
def delete_lane(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    lane = lane_on_board(kanban, args["board_id"], args["lane_id"])
    if len(kanban.lanes_of(lane.board_id)) == 1:
        raise ToolFault(f"Lane {lane.id} is the only lane of board {lane.board_id} and must stay.")
    moved = empty_lane(kanban, lane, args.get("move_cards_to_lane_id"))
    kanban.lanes.remove(lane.id)
    renumber_lanes(kanban, kanban.lanes_of(lane.board_id))
    return {"deleted_lane_id": lane.id, "moved_card_ids": moved}


def empty_lane(kanban: Kanban, lane: Lane, target_id: int | None) -> list[int]:
    """Move every card out of the lane, including archived ones, and return them."""
    held = [card for card in kanban.cards if card.lane_id == lane.id]
    if not held:
        return []
    if target_id is None or target_id == lane.id:
        raise ToolFault(
            f"Lane {lane.id} '{lane.name}' still holds {len(held)} cards. Pass move_cards_to_lane_id with another "
            "lane of the same board."
        )
    target = lane_on_board(kanban, lane.board_id, target_id)
    for card in held:
        if card.is_archived:
            kanban.cards.put(replace(card, lane_id=target.id))
        else:
            reason = f"lane '{lane.name}' was deleted"
            column = kanban.columns.get(card.column_id)
            move_card(kanban, kanban.cards.get(card.id), column, target, None, reason, kanban.acting_user_id)
    return [card.id for card in held]


def lane_on_board(kanban: Kanban, board_id: int, lane_id: int) -> Lane:
    board, lane = kanban.boards.get(board_id), kanban.lanes.get(lane_id)
    if lane.board_id != board.id:
        raise ToolFault(
            f"Lane {lane_id} is on board {lane.board_id}, not on board {board_id}. "
            f"Call list_lanes with board_id {board_id}."
        )
    return lane


def renumber_lanes(kanban: Kanban, ordered: list[Lane]) -> None:
    for index, lane in enumerate(ordered):
        kanban.lanes.put(replace(lane, position=index))


TOOLS = (list_lanes, create_lane, update_lane, delete_lane)
