"""Parameter and output schemas that several kanban tools share, each written once.

Tool modules compose their schemas from these; parameters of a single tool stay with that tool.
"""

from mcp_optimizer_demo.json_schema import Schema, array, boolean, integer, nullable, one_of, string
from mcp_optimizer_demo.kanban.records import SECTIONS

COLOR_PATTERN = "^#[0-9A-Fa-f]{6}$"


def identifier(description: str) -> Schema:
    return integer(description, minimum=1)


def identifiers(description: str, **keywords: int) -> Schema:
    return array({"type": "integer", "minimum": 1}, description, **keywords)


BOARD_ID = identifier("The ID of the board, as returned by list_boards or search_board.")
CARD_ID = identifier("The ID of the card, as returned by list_cards or search_cards (not the custom_id).")
WORKSPACE_ID = identifier("The ID of the workspace, as returned by list_workspaces.")
USER_ID = identifier("The ID of the user, as returned by list_users.")
COLUMN_ID = identifier("The ID of the column, as returned by list_columns or get_board_structure.")
LANE_ID = identifier("The ID of the lane (swimlane), as returned by list_lanes or get_board_structure.")
TAG_ID = identifier("The ID of the tag, as returned by list_tags.")
COMMENT_ID = identifier("The ID of the comment, as returned by list_comments.")
SUBTASK_ID = identifier("The ID of the subtask, as returned by list_subtasks.")
FIELD_ID = identifier("The ID of the custom field, as returned by list_custom_fields.")
ACTING_USER_ID = identifier(
    "The ID of the user in whose name this is done and recorded in the card history. Defaults to the user "
    "that owns the API key."
)
IN_BOARD = identifier("Only consider cards on this board. Omit to cover every board you can see.")
IN_WORKSPACE = identifier("Only consider boards that belong to this workspace. Ignored when board_id is given as well.")
FOR_USER = identifier("Only consider cards this user owns or co-owns.")

COLOR = string(
    'Color as a six-digit hexadecimal RGB value with a leading hash sign, e.g. "#F37325".',
    pattern=COLOR_PATTERN,
)
WIP_LIMIT = integer(
    "Work-in-progress limit: the largest number of cards allowed at the same time. 0 means no limit. "
    "Creating or moving a card beyond the limit is refused unless a reason to exceed it is given.",
    minimum=0,
    maximum=999,
)
SECTION = one_of(
    SECTIONS,
    'The workflow section: "backlog" (not yet committed), "requested" (committed, waiting), "progress" '
    '(being worked on) or "done".',
)
PAGE = integer("Page of results to return, starting from 1.", minimum=1, default=1)
PER_PAGE = integer(
    "Number of results per page. Larger pages cost more tokens to read.", minimum=1, maximum=200, default=50
)
PAGING = {"page": PAGE, "per_page": PER_PAGE}
INCLUDE_ARCHIVED = boolean("Set to true to include archived items in the result.", default=False)
IGNORE_WIP_LIMIT = boolean(
    "Set to true to place the card even when the WIP limit of the column or lane is reached. Requires "
    "exceeding_reason.",
    default=False,
)
EXCEEDING_REASON = string(
    "Why the WIP limit may be exceeded. Stored with the move and shown in the card history. Only used "
    "together with ignore_wip_limit.",
    maxLength=500,
)
POSITION = integer(
    "Zero-based position inside the cell formed by column and lane; 0 is the top. Cards at and below the "
    "position shift down by one. Omit to place the card at the bottom.",
    minimum=0,
)
DATE_FROM = string("First day of the period, inclusive, in ISO 8601 format (YYYY-MM-DD).", format="date")
DATE_TO = string("Last day of the period, inclusive, in ISO 8601 format (YYYY-MM-DD).", format="date")
PERIOD = {"date_from": DATE_FROM, "date_to": DATE_TO}

# Output schemas.

TOTAL = integer("Number of matching items over all pages.", minimum=0)
TIMESTAMP = string("Moment in ISO 8601 format, UTC.", format="date-time")
MAYBE_DATE = nullable(string("Day in ISO 8601 format, or null.", format="date"))
PAGED = {
    "page": integer("The page that was returned.", minimum=1),
    "per_page": integer("Number of results per page that was applied.", minimum=1),
    "total": TOTAL,
}
