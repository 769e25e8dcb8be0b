"""Tools on the workflow of a board: its path through the sections, cycle time columns and WIP limits."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import array, boolean, integer, one_of, record, string
from mcp_optimizer_demo.kanban.column_tools import column_on_board
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.lane_tools import lane_on_board
from mcp_optimizer_demo.kanban.parameters import BOARD_ID, WIP_LIMIT, identifier
from mcp_optimizer_demo.kanban.records import SECTIONS, Board
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.toolserver import SETS, Arguments, ToolFault


@kanban_tool(
    "List Workflows",
    "Get the workflow of each board: the path its cards take through the sections backlog, requested, progress and "
    "done, the column where work is committed to and the column where it counts as finished, and every column "
    "that has reached its WIP limit. Use it to compare how teams work.",
    {
        "board_id": identifier("Only return the workflow of this board."),
        "workspace_id": identifier("Only return workflows of boards in this workspace."),
    },
)
def list_workflows(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    if "board_id" in args:
        boards = [kanban.boards.get(args["board_id"])]
    else:
        boards = [board for board in kanban.boards if not board.is_archived]
    if "workspace_id" in args:
        workspace = kanban.workspaces.get(args["workspace_id"])
        boards = [board for board in boards if board.workspace_id == workspace.id]
    return {"workflows": [workflow_view(kanban, board) for board in boards]}


def workflow_view(kanban: Kanban, board: Board) -> dict[str, Any]:
    columns = kanban.columns_of(board.id)
    commitment = next((c for c in columns if c.section in ("requested", "progress")), None)
    finish = next((c for c in columns if c.section == "done"), None)
    full = [c for c in columns if c.wip_limit and len(kanban.cards_in(column_id=c.id)) >= c.wip_limit]
    return {
        "board_id": board.id,
        "board_name": board.name,
        "sections": {section: [c.name for c in columns if c.section == section] for section in SECTIONS},
        "commitment_column_id": commitment.id if commitment else None,
        "finish_column_id": finish.id if finish else None,
        "columns_at_wip_limit": [c.id for c in full],
        "lanes": [lane.name for lane in kanban.lanes_of(board.id)],
    }


@kanban_tool(
    "Get Workflow Cycle Time Columns",
    "Get the columns of a board whose time counts as cycle time, in board order. get_cycle_time measures from the "
    'first entry into one of these columns until the card reaches "done". Change the setting of a column with '
    "update_column.",
    {"board_id": BOARD_ID},
    required=("board_id",),
    output={
        "board_id": integer("ID of the board."),
        "columns": array(
            record(
                {
                    "column_id": integer("ID of the column."),
                    "name": string("Column heading."),
                    "section": one_of(SECTIONS, "Section of the column."),
                },
                required=("column_id", "name", "section"),
            ),
            "The cycle time columns from left to right.",
        ),
        "is_default": boolean('True when exactly the columns of section "progress" count.'),
    },
)
def get_workflow_cycle_time_columns(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    board = kanban.boards.get(args["board_id"])
    columns = kanban.columns_of(board.id)
    return {
        "board_id": board.id,
        "columns": [
            {"column_id": c.id, "name": c.name, "section": c.section} for c in columns if c.counts_in_cycle_time
        ],
        "is_default": all(c.counts_in_cycle_time == (c.section == "progress") for c in columns),
    }


@kanban_tool(
    "Set WIP Limit",
    "Set or remove the work-in-progress limit of one column or one lane. Cards already there stay even when they "
    "are more than the new limit allows; the answer says so in is_exceeded. Give either column_id or lane_id.",
    {
        "board_id": BOARD_ID,
        "column_id": identifier("The column to limit. Mutually exclusive with lane_id."),
        "lane_id": identifier("The lane to limit. Mutually exclusive with column_id."),
        "wip_limit": WIP_LIMIT,
    },
    required=("board_id", "wip_limit"),
    hints=SETS,
    output={
        "board_id": integer("ID of the board."),
        "column_id": integer("ID of the column, when a column was limited."),
        "lane_id": integer("ID of the lane, when a lane was limited."),
        "wip_limit": integer("The limit now in force; 0 means none."),
        "card_count": integer("Number of cards that count against the limit now."),
        "is_exceeded": boolean("Whether there are more cards than the limit allows."),
    },
    output_required=("board_id", "wip_limit", "card_count", "is_exceeded"),
)
def set_wip_limit(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    if ("column_id" in args) == ("lane_id" in args):
        raise ToolFault("set_wip_limit needs exactly one of column_id and lane_id.")
    limit = args["wip_limit"]
    if "column_id" in args:
        column = column_on_board(kanban, args["board_id"], args["column_id"])
        kanban.columns.put(replace(column, wip_limit=limit))
        target, count = {"column_id": column.id}, len(kanban.cards_in(column_id=column.id))
    else:
        lane = lane_on_board(kanban, args["board_id"], args["lane_id"])
        kanban.lanes.put(replace(lane, wip_limit=limit))
        active = [c.id for c in kanban.columns_of(lane.board_id) if c.section == "progress"]
        count = sum(len(kanban.cards_in(column_id=column_id, lane_id=lane.id)) for column_id in active)
        target = {"lane_id": lane.id}
    exceeded = bool(limit) and count > limit
    return {
        "board_id": args["board_id"],
        **target,
        "wip_limit": limit,
        "card_count": count,
        "is_exceeded": exceeded,
    }


TOOLS = (list_workflows, get_workflow_cycle_time_columns, set_wip_limit)
