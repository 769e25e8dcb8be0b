"""Tools on the server itself: which instances it offers and whether they work."""

from typing import Any

from mcp_optimizer_demo.json_schema import arguments, array, boolean, integer, one_of, record, result, string
from mcp_optimizer_demo.kanban.declaration import INSTANCE, KanbanTool, kanban_tool
from mcp_optimizer_demo.kanban.state import Installation, Kanban
from mcp_optimizer_demo.toolserver import Arguments, DemoTool


@kanban_tool(
    "Health Check",
    "Check that an instance answers and that its data is consistent: every card stands in an existing column and lane "
    "of its board, and positions have no gaps. Returns the number of records of each kind and how long the instance "
    "has been running. Call this when other tools fail unexpectedly.",
    {"verbose": boolean("Set to true to list each problem found instead of only counting them.", default=False)},
    output={
        "status": one_of(("ok", "inconsistent"), '"ok" when no problem was found.'),
        "company": string("Company the instance belongs to."),
        "uptime_seconds": integer("Seconds since the instance was started.", minimum=0),
        "counts": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "Number of records per kind.",
        },
        "problem_count": integer("Number of problems found.", minimum=0),
        "problems": array({"type": "string"}, "The problems, when verbose is true."),
    },
    output_required=("status", "company", "uptime_seconds", "counts", "problem_count"),
)
def health_check(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    problems = inconsistencies(kanban)
    kinds = ("workspaces", "boards", "columns", "lanes", "cards", "users", "tags", "comments", "subtasks", "moves")
    answer = {
        "status": "inconsistent" if problems else "ok",
        "company": kanban.company,
        "uptime_seconds": int((kanban.now() - kanban.started_at).total_seconds()),
        "counts": {kind: len(getattr(kanban, kind)) for kind in kinds},
        "problem_count": len(problems),
    }
    return answer | ({"problems": problems} if args.get("verbose", False) else {})


def inconsistencies(kanban: Kanban) -> list[str]:
    """Cards that are in a cell of another board, and cells whose positions have gaps."""
    problems = []
    cells: dict[tuple[int, int], list[int]] = {}
    for card in kanban.cards:
        boards = {kanban.columns.get(card.column_id).board_id, kanban.lanes.get(card.lane_id).board_id}
        if boards != {card.board_id}:
            problems.append(f"card {card.id} is on board {card.board_id} but in a cell of board {sorted(boards)}")
        if not card.is_archived:
            cells.setdefault((card.column_id, card.lane_id), []).append(card.position)
    for (column_id, lane_id), positions in cells.items():
        if sorted(positions) != list(range(len(positions))):
            problems.append(f"column {column_id}, lane {lane_id}: positions {sorted(positions)}")
    return problems


def describe_instances(installation: Installation, args: Arguments) -> dict[str, Any]:
    chosen = installation.instances
    if "instance" in args:
        chosen = {args["instance"]: installation.instance(args)}
    return {
        "default_instance": installation.default,
        "instances": [
            {
                "name": name,
                "company": kanban.company,
                "is_default": name == installation.default,
                "api_user_id": kanban.acting_user_id,
                "board_count": len(kanban.boards),
                "card_count": len(kanban.cards),
            }
            for name, kanban in chosen.items()
        ],
    }


# Declared without the decorator, because it is about all instances; every other tool works on one.
list_instances: KanbanTool = DemoTool(
    name="list_instances",
    title="List Instances",
    description="Get the kanban instances this server is configured for, and which of them is the default. Pass the "
    "name of an instance as the instance parameter of any other tool to work with it. Instances are completely "
    "separate: IDs of one mean nothing in another.",
    input_schema=arguments({"instance": {**INSTANCE, "description": "Only return the instance of this name."}}),
    handler=describe_instances,
    output_schema=result(
        {
            "default_instance": string("Name of the instance used when a call names none."),
            "instances": array(
                record(
                    {
                        "name": string("Name to pass as instance."),
                        "company": string("Company the instance belongs to."),
                        "is_default": boolean("Whether this is the default instance."),
                        "api_user_id": integer("ID of the user calls are made for."),
                        "board_count": integer("Number of boards."),
                        "card_count": integer("Number of cards."),
                    },
                    required=("name", "company", "is_default"),
                ),
                "The configured instances.",
            ),
        }
    ),
)

TOOLS = (health_check, list_instances)
