"""Tools on the columns of a board."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, boolean, integer, one_of, record, string
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import BOARD_ID, COLUMN_ID, SECTION, WIP_LIMIT, identifier
from mcp_optimizer_demo.kanban.placement import move_card
from mcp_optimizer_demo.kanban.records import NEW, SECTIONS, Column
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import column_view
from mcp_optimizer_demo.toolserver import ADDS, DESTROYS, SETS, Arguments, ToolFault

NAME = string("Column heading. Must be unique on the board.", minLength=1, maxLength=60)
DESCRIPTION = string(
    "Policy of the column: what must be true before a card may enter it. Shown as a tooltip on the board.",
    maxLength=1000,
)
POSITION = integer(
    "Zero-based position of the column from the left. Columns must stay in the order of their sections: backlog, "
    "requested, progress, done.",
    minimum=0,
)
COUNTS_IN_CYCLE_TIME = boolean(
    "Whether the time a card spends in this column counts as cycle time. Defaults to true for columns of the "
    'section "progress" and to false for all others.'
)

COLUMN: Schema = record(
    {
        "column_id": integer("Unique ID of the column."),
        "board_id": integer("ID of the board it is on."),
        "name": string("Column heading."),
        "section": one_of(SECTIONS, "Workflow section of the column."),
        "position": integer("Zero-based position from the left."),
        "wip_limit": integer("Largest number of cards allowed; 0 means no limit."),
        "counts_in_cycle_time": boolean("Whether time spent here counts as cycle time."),
        "description": string("Policy of the column."),
        "card_count": integer("Number of cards in the column now."),
    },
    required=("column_id", "name", "section", "position", "wip_limit", "card_count"),
)


@kanban_tool(
    "List Columns",
    "Get the columns of a board from left to right, with section, WIP limit and the number of cards in each.",
    {
        "board_id": BOARD_ID,
        "sections": array(SECTION, "Only return columns of these sections. Omit for all.", maxItems=4),
    },
    required=("board_id",),
    output={"board_id": integer("ID of the board."), "columns": array(COLUMN, "The columns from left to right.")},
)
def list_columns(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    board = kanban.boards.get(args["board_id"])
    wanted = args.get("sections") or SECTIONS
    columns = [c for c in kanban.columns_of(board.id) if c.section in wanted]
    return {"board_id": board.id, "columns": [column_view(kanban, column) for column in columns]}


@kanban_tool(
    "Create Column",
    "Add a column to a board. Without a position it becomes the last column of its section. The positions of the "
    "columns to its right are shifted by one.",
    {
        "board_id": BOARD_ID,
        "name": NAME,
        "section": SECTION,
        "position": POSITION,
        "wip_limit": {**WIP_LIMIT, "default": 0},
        "description": DESCRIPTION,
        "counts_in_cycle_time": COUNTS_IN_CYCLE_TIME,
    },
    required=("board_id", "name", "section"),
    hints=ADDS,
    output={"column": COLUMN},
)
def create_column(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    board = kanban.boards.get(args["board_id"])
    check_name(kanban, board.id, args["name"], None)
    section = args["section"]
    column = Column(
        id=NEW,
        board_id=board.id,
        name=args["name"],
        section=section,
        position=0,
        wip_limit=args.get("wip_limit", 0),
        counts_in_cycle_time=args.get("counts_in_cycle_time", section == "progress"),
        description=args.get("description", ""),
    )
    ordered = inserted(kanban.columns_of(board.id), column, args.get("position"))
    column = kanban.columns.add(column)
    renumber_columns(kanban, [column if other.id == NEW else other for other in ordered])
    return {"column": column_view(kanban, kanban.columns.get(column.id))}


@kanban_tool(
    "Update Column",
    "Change the name, position, WIP limit, policy or cycle time setting of a column. Only the fields you pass are "
    "changed. The section of a column cannot be changed, because the recorded history of its cards depends on it.",
    {
        "board_id": BOARD_ID,
        "column_id": COLUMN_ID,
        "name": NAME,
        "position": POSITION,
        "wip_limit": WIP_LIMIT,
        "description": DESCRIPTION,
        "counts_in_cycle_time": COUNTS_IN_CYCLE_TIME,
    },
    required=("board_id", "column_id"),
    hints=SETS,
    output={"column": COLUMN},
)
def update_column(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    column = column_on_board(kanban, args["board_id"], args["column_id"])
    if "name" in args:
        check_name(kanban, column.board_id, args["name"], column.id)
    if "position" in args:
        others = [c for c in kanban.columns_of(column.board_id) if c.id != column.id]
        renumber_columns(kanban, inserted(others, column, args["position"]))
    names = ("name", "wip_limit", "description", "counts_in_cycle_time")
    changes = {name: args[name] for name in names if name in args}
    column = kanban.columns.put(replace(kanban.columns.get(column.id), **changes))
    return {"column": column_view(kanban, column)}


@kanban_tool(
    "Delete Column",
    "Delete a column. A column that still holds cards is only deleted when move_cards_to_column_id names a column "
    "of the same board that takes them over; WIP limits are not checked for this. The last column of the section "
    '"done" cannot be deleted. This cannot be undone.',
    {
        "board_id": BOARD_ID,
        "column_id": COLUMN_ID,
        "move_cards_to_column_id": identifier("Column of the same board that receives the cards, archived ones too."),
    },
    required=("board_id", "column_id"),
    hints=DESTROYS,
)
def delete_column(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    column = column_on_board(kanban, args["board_id"], args["column_id"])
    same_section = [c for c in kanban.columns_of(column.board_id) if c.section == column.section]
    if column.section == "done" and len(same_section) == 1:
        raise ToolFault(f"Column {column.id} is the only 'done' column of board {column.board_id} and must stay.")
    moved = empty_column(kanban, column, args.get("move_cards_to_column_id"))
    kanban.columns.remove(column.id)
    renumber_columns(kanban, kanban.columns_of(column.board_id))
    return {"deleted_column_id": column.id, "moved_card_ids": moved}


def empty_column(kanban: Kanban, column: Column, target_id: int | None) -> list[int]:
    """Move every card out of the column, including archived ones, and return them."""
    held = [card for card in kanban.cards if card.column_id == column.id]
    if not held:
        return []
    if target_id is None or target_id == column.id:
        raise ToolFault(
            f"Column {column.id} '{column.name}' still holds {len(held)} cards. Pass move_cards_to_column_id with "
            "another column of the same board."
        )
    target = column_on_board(kanban, column.board_id, target_id)
    for card in held:
        if card.is_archived:
            kanban.cards.put(replace(card, column_id=target.id))
        else:
            reason = f"column '{column.name}' was deleted"
            lane = kanban.lanes.get(card.lane_id)
            move_card(kanban, kanban.cards.get(card.id), target, lane, None, reason, kanban.acting_user_id)
    return [card.id for card in held]


def column_on_board(kanban: Kanban, board_id: int, column_id: int) -> Column:
    board, column = kanban.boards.get(board_id), kanban.columns.get(column_id)
    if column.board_id != board.id:
        raise ToolFault(
            f"Column {column_id} is on board {column.board_id}, not on board {board_id}. "
            f"Call list_columns with board_id {board_id}."
        )
    return column


def check_name(kanban: Kanban, board_id: int, name: str, own_id: int | None) -> None:
    for column in kanban.columns_of(board_id):
        if column.name.casefold() == name.casefold() and column.id != own_id:
            raise ToolFault(f"Column {column.id} of this board is already named '{column.name}'.")


def inserted(columns: list[Column], column: Column, position: int | None) -> list[Column]:
    """The columns with one more at the position; sections must stay in order."""
    rank = SECTIONS.index(column.section)
    index = sum(SECTIONS.index(c.section) <= rank for c in columns) if position is None else position
    ordered = [*columns[:index], column, *columns[index:]]
    ranks = [SECTIONS.index(c.section) for c in ordered]
    if ranks != sorted(ranks):
        raise ToolFault(
            f"A '{column.section}' column cannot stand at position {position}: columns are ordered by section "
            "(backlog, requested, progress, done). Omit position to place it last in its section."
        )
    return ordered


def renumber_columns(kanban: Kanban, ordered: list[Column]) -> None:
    for index, column in enumerate(ordered):
        kanban.columns.put(replace(column, position=index))


TOOLS = (list_columns, create_column, update_column, delete_column)
