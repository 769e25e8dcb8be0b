"""Output schemas for cards: the summary used in lists, and the complete card."""

from mcp_optimizer_demo.json_schema import Schema, array, boolean, integer, nullable, number, one_of, record, string
from mcp_optimizer_demo.kanban.parameters import MAYBE_DATE, TIMESTAMP
from mcp_optimizer_demo.kanban.records import PRIORITIES, SECTIONS, SERVICE_CLASSES

CARD_ROW_FIELDS: dict[str, Schema] = {
    "card_id": integer("Unique ID of the card."),
    "custom_id": nullable(string("Your own identifier for the card.")),
    "title": string("The title of the card."),
    "board_id": integer("ID of the board the card is on."),
    "column_id": integer("ID of the column the card is in."),
    "column_name": string("Name of that column."),
    "section": one_of(SECTIONS, "Section of that column."),
    "lane_id": integer("ID of the lane the card is in."),
    "position": integer("Zero-based position in the cell of column and lane."),
    "priority": one_of(PRIORITIES, "Priority of the card."),
    "type_id": integer("ID of the card type."),
    "owner_user_id": nullable(integer("ID of the owner, or null.")),
    "deadline": MAYBE_DATE,
    "size": nullable(number("Size of the card, or null.")),
    "tag_ids": array({"type": "integer"}, "IDs of the tags on the card."),
    "is_blocked": boolean("Whether the card is blocked now."),
    "updated_at": TIMESTAMP,
}
REQUIRED = ("card_id", "title", "board_id", "column_id", "lane_id", "position", "is_blocked")
CARD_ROW: Schema = record(CARD_ROW_FIELDS, required=REQUIRED)


def card_row_with(more: dict[str, Schema]) -> Schema:
    """A card in a list, with the additional properties of this list."""
    return record({**CARD_ROW_FIELDS, **more}, required=REQUIRED)


CARD_SUMMARY_OPEN: Schema = {**CARD_ROW, "additionalProperties": True}
CARD: Schema = {
    **record(
        {
            **CARD_ROW_FIELDS,
            "description": string("The full description."),
            "color": string("Color of the card on the board."),
            "class_of_service": one_of(SERVICE_CLASSES, "Class of service."),
            "reporter_user_id": nullable(integer("ID of the user who asked for the work, or null.")),
            "co_owner_ids": array({"type": "integer"}, "IDs of the co-owners."),
            "watcher_ids": array({"type": "integer"}, "IDs of the watchers."),
            "planned_start_date": MAYBE_DATE,
            "planned_end_date": MAYBE_DATE,
            "estimated_hours": nullable(number("Estimated working time in hours, or null.")),
            "parent_card_id": nullable(integer("ID of the parent card, or null.")),
            "is_archived": boolean("Whether the card is archived."),
            "created_at": TIMESTAMP,
        },
        required=REQUIRED,
    ),
    "additionalProperties": True,
}
