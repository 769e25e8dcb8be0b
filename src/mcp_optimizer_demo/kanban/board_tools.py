"""Tools on boards: finding, creating, changing and archiving them, and reading their structure."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, boolean, integer, number, record, string
from mcp_optimizer_demo.kanban.column_tools import COLUMN
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.lane_tools import LANE
from mcp_optimizer_demo.kanban.parameters import (
    BOARD_ID,
    INCLUDE_ARCHIVED,
    PAGED,
    PAGING,
    SECTION,
    WIP_LIMIT,
    WORKSPACE_ID,
    identifier,
)
from mcp_optimizer_demo.kanban.records import NEW, SECTIONS, Board, Column, Lane, Section
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.text_match import match_score
from mcp_optimizer_demo.kanban.user_tools import USER
from mcp_optimizer_demo.kanban.views import board_view, column_view, fields_of, lane_view, paged, user_view
from mcp_optimizer_demo.toolserver import ADDS, DESTROYS, SETS, Arguments, ToolFault

NAME = string("Display name of the board, shown in navigation and reports.", minLength=1, maxLength=150)
DESCRIPTION = string("What the board is used for. Plain text.", maxLength=2000)
BOARD: Schema = record(
    {
        "board_id": integer("Unique ID of the board."),
        "workspace_id": integer("ID of the workspace the board belongs to."),
        "workspace_name": string("Name of that workspace."),
        "name": string("Display name of the board."),
        "description": string("What the board is used for."),
        "is_archived": boolean("Whether the board is archived."),
        "card_count": integer("Number of cards on the board that are not archived."),
    },
    required=("board_id", "workspace_id", "name", "is_archived", "card_count"),
)
STRUCTURE: dict[str, Schema] = {
    **BOARD["properties"],
    "columns": array(COLUMN, "The columns from left to right."),
    "lanes": array(LANE, "The lanes from top to bottom."),
}
CARD_TYPE: Schema = record(
    {
        "id": integer("Unique ID of the card type; pass it as type_id."),
        "name": string("Name of the type."),
        "color": string("Default color of its cards."),
    },
    required=("id", "name"),
)
DEFAULT_COLUMNS: tuple[tuple[str, Section], ...] = (
    ("Backlog", "backlog"),
    ("Requested", "requested"),
    ("In Progress", "progress"),
    ("Done", "done"),
)


@kanban_tool(
    "List Boards",
    "Get the boards you can see, optionally only those of one workspace or those a user takes part in. Returns "
    "the ID, name, workspace and card count of each board, not their columns: call get_board_structure for those.",
    {
        "workspace_id": identifier("Only return boards of this workspace. See list_workspaces for IDs."),
        "user_id": identifier("Only return boards of workspaces this user is a member of."),
        "include_archived": INCLUDE_ARCHIVED,
        **PAGING,
    },
    output={**PAGED, "boards": array(BOARD, "The boards, ordered by ID.")},
)
def list_boards(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    rows = visible_boards(kanban, args)
    if "user_id" in args:
        allowed = kanban.users.get(args["user_id"]).workspace_ids
        rows = [board for board in rows if board.workspace_id in allowed]
    return paged(rows, args, "boards", lambda row: board_view(kanban, row))


@kanban_tool(
    "Get Board",
    "Get one board: its name, description, workspace, the number of cards per section and the members of its "
    "workspace. For columns, lanes and WIP limits call get_board_structure; for the cards call list_cards.",
    {"board_id": BOARD_ID},
    required=("board_id",),
    output={
        **BOARD["properties"],
        "cards_by_section": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "Number of cards per section.",
        },
        "members": array(USER, "Users who can be assigned on this board."),
    },
)
def get_board(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    board = kanban.boards.get(args["board_id"])
    sections: dict[str, int] = {}
    for column in kanban.columns_of(board.id):
        count = len(kanban.cards_in(column_id=column.id))
        sections[column.section] = sections.get(column.section, 0) + count
    members = [user_view(user) for user in kanban.users if board.workspace_id in user.workspace_ids]
    return {**board_view(kanban, board), "cards_by_section": sections, "members": members}


@kanban_tool(
    "Search Board",
    "Find a board when you know its ID or part of its name. With board_id, returns exactly that board. With name, "
    "returns the boards whose name or description contains the words, best match first; small spelling mistakes "
    "are tolerated. Give at least one of the two. When nothing matches, the names of all boards are returned as "
    "suggestions.",
    {
        "board_id": identifier("The ID of the board to look up. Takes precedence over name."),
        "name": string(
            'The name of the board or a part of it, e.g. "platform". Case does not matter.',
            minLength=1,
            maxLength=150,
        ),
        "workspace_id": identifier("Restrict the search by name to the boards of this workspace."),
        "include_archived": INCLUDE_ARCHIVED,
    },
    output={
        "total": integer("Number of boards found.", minimum=0),
        "boards": array(
            record(
                {**BOARD["properties"], "score": number("How well the board matches, from 0 to 1.")},
                required=BOARD["required"],
            ),
            "The boards found, best match first.",
        ),
        "suggestions": array({"type": "string"}, "Names of existing boards; filled only when nothing was found."),
    },
)
def search_board(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    if "board_id" in args:
        return {"total": 1, "boards": [board_view(kanban, kanban.boards.get(args["board_id"]))], "suggestions": []}
    if "name" not in args:
        raise ToolFault("search_board needs a board_id or a name to search for.")
    candidates = visible_boards(kanban, args)
    scored = [
        (max(match_score(args["name"], board.name), match_score(args["name"], board.description) * 0.8), board)
        for board in candidates
    ]
    found = sorted((pair for pair in scored if pair[0] >= 0.5), key=lambda pair: (-pair[0], pair[1].id))
    boards = [{**board_view(kanban, board), "score": round(score, 2)} for score, board in found]
    suggestions = [] if boards else [board.name for board in candidates]
    return {"total": len(boards), "boards": boards, "suggestions": suggestions}


@kanban_tool(
    "Create Board",
    "Create a board in a workspace. Without further instructions it gets the columns Backlog, Requested, In "
    "Progress and Done and one lane; pass columns to set your own, or copy_from_board_id to take over the columns "
    "and lanes (not the cards) of an existing board.",
    {
        "workspace_id": WORKSPACE_ID,
        "name": NAME,
        "description": DESCRIPTION,
        "columns": {
            "type": "array",
            "items": record(
                {
                    "name": string("Column heading.", minLength=1, maxLength=60),
                    "section": SECTION,
                    "wip_limit": {**WIP_LIMIT, "default": 0},
                },
                required=("name", "section"),
            ),
            "minItems": 2,
            "maxItems": 20,
            "description": "The columns from left to right, in the order of their sections, at least one of them "
            'of section "done".',
        },
        "copy_from_board_id": identifier("Copy columns and lanes from this board. Excludes columns."),
    },
    required=("workspace_id", "name"),
    hints=ADDS,
    output=STRUCTURE,
)
def create_board(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    workspace = kanban.workspaces.get(args["workspace_id"])
    if workspace.is_archived:
        raise ToolFault(f"Workspace {workspace.id} is archived. Restore it with archive_workspace first.")
    columns, lanes = planned_structure(kanban, args)
    description = args.get("description", "")
    board = kanban.boards.add(Board(NEW, workspace.id, args["name"], description))
    for index, column in enumerate(columns):
        add_column_copy(kanban, column, board.id, index)
    for lane in lanes:
        add_lane_copy(kanban, lane, board.id)
    return structure(kanban, board)


def planned_structure(kanban: Kanban, args: Arguments) -> tuple[list[Column], list[Lane]]:
    """The columns and lanes a new board starts with; ids and board are filled in when they are added."""
    if "copy_from_board_id" in args:
        if "columns" in args:
            raise ToolFault("Pass either columns or copy_from_board_id, not both.")
        source = kanban.boards.get(args["copy_from_board_id"])
        return kanban.columns_of(source.id), kanban.lanes_of(source.id)
    wanted = args.get("columns") or [{"name": name, "section": section} for name, section in DEFAULT_COLUMNS]
    if not any(column["section"] == "done" for column in wanted):
        raise ToolFault("A board needs at least one column of section 'done'. Add one to columns.")
    ranks = [SECTIONS.index(column["section"]) for column in wanted]
    if ranks != sorted(ranks):
        raise ToolFault(f"Columns must follow the order of sections: {', '.join(SECTIONS)}. Reorder columns.")
    columns = [
        Column(NEW, 0, c["name"], c["section"], 0, c.get("wip_limit", 0), c["section"] == "progress") for c in wanted
    ]
    return columns, [Lane(NEW, 0, "Default", 0)]


def add_column_copy(kanban: Kanban, column: Column, board_id: int, position: int) -> None:
    kanban.columns.add(replace(column, board_id=board_id, position=position))


def add_lane_copy(kanban: Kanban, lane: Lane, board_id: int) -> None:
    kanban.lanes.add(replace(lane, board_id=board_id))


@kanban_tool(
    "Update Board",
    "Rename a board, change its description or move it to another workspace. Only the fields you pass are "
    "changed. Cards, columns and lanes stay as they are.",
    {
        "board_id": BOARD_ID,
        "name": NAME,
        "description": DESCRIPTION,
        "workspace_id": identifier("Move the board to this workspace."),
    },
    required=("board_id",),
    hints=SETS,
    output={"board": BOARD},
)
def update_board(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    board = kanban.boards.get(args["board_id"])
    if "workspace_id" in args:
        kanban.workspaces.get(args["workspace_id"])
    changes = {name: args[name] for name in ("name", "description", "workspace_id") if name in args}
    return {"board": board_view(kanban, kanban.boards.put(replace(board, **changes)))}


@kanban_tool(
    "Archive Board",
    "Archive a board so that it no longer appears in lists and its cards can no longer be created or moved, or "
    "restore an archived board. Cards, comments and history are kept.",
    {
        "board_id": BOARD_ID,
        "restore": boolean("Set to true to bring an archived board back instead.", default=False),
    },
    required=("board_id",),
    hints=DESTROYS,
)
def archive_board(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    board = kanban.boards.get(args["board_id"])
    archived = kanban.boards.put(replace(board, is_archived=not args.get("restore", False)))
    return {"board_id": board.id, "is_archived": archived.is_archived}


@kanban_tool(
    "Get Board Structure",
    "Get everything needed to create or move cards on a board: its columns in order with their section and WIP "
    "limit, its lanes, the card types, and how many cards are in each column now. Call this before create_card or "
    "move_card to find column_id, lane_id and type_id.",
    {
        "board_id": BOARD_ID,
        "include_card_types": boolean("Set to false to leave out the card types.", default=True),
    },
    required=("board_id",),
    output={**STRUCTURE, "card_types": array(CARD_TYPE, "The types a card can have.")},
    output_required=tuple(STRUCTURE),
)
def get_board_structure(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    view = structure(kanban, kanban.boards.get(args["board_id"]))
    if args.get("include_card_types", True):
        view["card_types"] = [fields_of(card_type) for card_type in kanban.card_types]
    return view


def structure(kanban: Kanban, board: Board) -> dict[str, Any]:
    return {
        **board_view(kanban, board),
        "columns": [column_view(kanban, column) for column in kanban.columns_of(board.id)],
        "lanes": [lane_view(kanban, lane) for lane in kanban.lanes_of(board.id)],
    }


def visible_boards(kanban: Kanban, args: Arguments) -> list[Board]:
    if "workspace_id" in args:
        kanban.workspaces.get(args["workspace_id"])
    return [
        board
        for board in kanban.boards
        if args.get("workspace_id", board.workspace_id) == board.workspace_id
        and (args.get("include_archived", False) or not board.is_archived)
    ]


TOOLS = (
    list_boards,
    get_board,
    search_board,
    create_board,
    update_board,
    archive_board,
    get_board_structure,
)
