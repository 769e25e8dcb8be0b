"""The fields of a card as parameters: their schemas for create_card and update_card.

Only schemas live here; what a field does to a card is in card_changes.
"""

from mcp_optimizer_demo.json_schema import Schema, array, boolean, integer, nullable, number, one_of, record, string
from mcp_optimizer_demo.kanban.parameters import COLOR_PATTERN, identifier, identifiers
from mcp_optimizer_demo.kanban.records import LINK_KINDS, PRIORITIES, SERVICE_CLASSES

TITLE = string(
    'The title of the card, shown on the board. Keep it short and start with a verb, e.g. "Fix rounding in the '
    'invoice total". Plain text, no line breaks.',
    minLength=1,
    maxLength=250,
    examples=["Fix rounding in the invoice total", "Let customers pay with instant bank transfer"],
)
DESCRIPTION = string(
    "The full description of the work. Markdown is accepted: headings, lists, links and code blocks. Write what is "
    "needed and why; put the conditions for completion into acceptance_criteria.",
    maxLength=20000,
    examples=["The invoice shows one cent more than the cart. Seen with three items at 19.99 and a 15% voucher."],
)
CUSTOM_ID = string(
    'Your own identifier for the card, e.g. the key of the same item in another system ("SHOP-1423"). Must be '
    "unique in the instance. Can be searched with search_cards.",
    minLength=1,
    maxLength=64,
    examples=["SHOP-1423"],
)
DEADLINE = string(
    "The day the work must be finished, in ISO 8601 format (YYYY-MM-DD). Cards past their deadline are reported as "
    "overdue by get_aging_work. For internal planning use planned_end_date instead.",
    format="date",
    examples=["2026-03-31"],
)
SIZE = number(
    "Relative effort of the card, usually in story points (1, 2, 3, 5, 8, 13). Fractions are allowed. Used by "
    "get_throughput and get_user_workload when they sum up size.",
    minimum=0,
    maximum=1000,
    examples=[3, 5, 0.5],
)
PRIORITY = one_of(
    PRIORITIES,
    'How important the card is compared to others: "critical", "high", "average" or "low". It does not change '
    "the position of the card in its column.",
)
COLOR = string(
    'Color of the card on the board as a six-digit hexadecimal RGB value with a leading hash sign, e.g. "#F37325". '
    "Defaults to the color of the card type.",
    pattern=COLOR_PATTERN,
)
TYPE_ID = identifier(
    "The ID of the card type (feature, bug, task, ...), as returned by get_board_structure in card_types."
)
OWNER = identifier(
    "The ID of the user who is responsible for the card. Must be an enabled user who is a member of the board's "
    "workspace; see list_users. Every card has at most one owner; use co-owners for further people. A card "
    "without an owner is shown as unassigned and can be found with the is_unassigned filter of list_cards."
)
REPORTER = identifier(
    "The ID of the user who asked for the work. Defaults to the user that owns the API key. The reporter is not "
    "responsible for the work and needs no access to the board."
)
CO_OWNERS_TO_ADD = identifiers(
    "IDs of users to add as co-owners. Users who are co-owners already are skipped. Same rules as for owner_user_id.",
    maxItems=20,
)
WATCHERS_TO_ADD = identifiers(
    "IDs of users who want to follow the card without working on it. They are listed in watcher_ids.", maxItems=50
)
TAGS_TO_ADD = identifiers(
    "IDs of tags to put on the card, as returned by list_tags. A tag that is restricted to a board or workspace can "
    "only be used there. Tags already on the card are skipped.",
    maxItems=30,
)
SERVICE_CLASS = one_of(
    SERVICE_CLASSES,
    'Class of service: "expedite" (drop everything else), "fixed_date" (has a date that cannot move; requires a '
    'deadline), "standard" (first in, first out) or "intangible" (no urgency now, but should not be forgotten).',
)
PLANNED_START = string(
    "The day work on the card is planned to begin, in ISO 8601 format (YYYY-MM-DD). Must not be after "
    "planned_end_date.",
    format="date",
)
PLANNED_END = string(
    "The day work on the card is planned to end, in ISO 8601 format (YYYY-MM-DD). A plan, not a commitment: see "
    "deadline for those.",
    format="date",
)
ESTIMATED_HOURS = number(
    "Estimated working time in hours for the whole card, subtasks included. Independent of size, which is relative.",
    minimum=0,
    maximum=10000,
    examples=[6.5],
)
REFERENCE = string(
    "Free reference, such as a contract or purchase order number. Not interpreted and need not be unique.",
    maxLength=120,
    examples=["PO-2026-0117"],
)
EXTERNAL_URL = string(
    "Link to the same item in another system, e.g. a pull request or a support ticket. Must start with http:// or "
    "https://.",
    pattern="^https?://",
    maxLength=500,
    examples=["https://git.example.com/shop/pulls/812"],
)
ACCEPTANCE_CRITERIA = string(
    "The conditions that must hold for the card to count as done, one per line. Markdown is accepted. Moving the card "
    'to "done" does not check them.',
    maxLength=10000,
    examples=["- Cart and invoice show the same total\n- A test covers three items with a voucher"],
)
RELEASE = string(
    'Name of the release or milestone the card is planned for, e.g. "2026.2". Cards can be listed by release with '
    "list_cards.",
    maxLength=60,
    examples=["2026.2"],
)
PARENT = identifier(
    "The ID of the card this card is a part of, for example an initiative on a management board. A card has at most "
    "one parent; a card cannot be a descendant of itself."
)
SUBTASK = record(
    {
        "description": string("What is to be done. Plain text, one line.", minLength=1, maxLength=500),
        "owner_user_id": identifier("The ID of the user who does the subtask. Defaults to nobody."),
        "deadline": string("The day the subtask must be finished (YYYY-MM-DD).", format="date"),
        "is_finished": boolean("Set to true when the subtask is finished already.", default=False),
        "position": integer("Zero-based position in the list. Omit to append at the end.", minimum=0),
    },
    required=("description",),
)
FIELD_SETTING = record(
    {
        "field_id": identifier("The ID of the custom field, as returned by list_custom_fields."),
        "value": {
            "type": ["string", "number", "boolean", "null"],
            "description": "The value. It must fit the kind of field: a string for text, a number for number, "
            "YYYY-MM-DD for date, one of the options for dropdown, true or false for checkbox. Null clears the "
            "field.",
        },
    },
    required=("field_id", "value"),
)
LINK = record(
    {
        "linked_card_id": identifier("The ID of the other card. It may be on another board."),
        "type": one_of(
            LINK_KINDS,
            'How this card relates to the other: "relates_to", "blocks" (this card must be finished first), '
            '"is_blocked_by" (the other must be finished first), "duplicates" or "is_duplicated_by".',
        ),
        "note": string("Why the cards are linked. Shown beside the link.", maxLength=300),
    },
    required=("linked_card_id", "type"),
)

SCALAR_FIELDS: dict[str, Schema] = {
    "description": DESCRIPTION,
    "custom_id": CUSTOM_ID,
    "deadline": DEADLINE,
    "size": SIZE,
    "priority": PRIORITY,
    "color": COLOR,
    "type_id": TYPE_ID,
    "owner_user_id": OWNER,
    "reporter_user_id": REPORTER,
    "class_of_service": SERVICE_CLASS,
    "planned_start_date": PLANNED_START,
    "planned_end_date": PLANNED_END,
    "estimated_hours": ESTIMATED_HOURS,
    "reference": REFERENCE,
    "external_url": EXTERNAL_URL,
    "acceptance_criteria": ACCEPTANCE_CRITERIA,
    "release": RELEASE,
    "parent_card_id": PARENT,
}
NEVER_EMPTY = ("priority", "color", "type_id", "class_of_service", "description", "reporter_user_id")
CLEARABLE_FIELDS: dict[str, Schema] = {
    name: schema if name in NEVER_EMPTY else nullable(schema) for name, schema in SCALAR_FIELDS.items()
}
LIST_FIELDS: dict[str, Schema] = {
    "co_owner_ids_to_add": CO_OWNERS_TO_ADD,
    "co_owner_ids_to_remove": identifiers(
        "IDs of users to remove from the co-owners. Users who are not co-owners are skipped.", maxItems=20
    ),
    "watcher_ids_to_add": WATCHERS_TO_ADD,
    "watcher_ids_to_remove": identifiers("IDs of users to remove from the watchers.", maxItems=50),
    "tag_ids_to_add": TAGS_TO_ADD,
    "tag_ids_to_remove": identifiers("IDs of tags to take off the card.", maxItems=30),
}
SUBTASKS = array(
    SUBTASK,
    "Subtasks (checklist items) to create on the card, in order. They can be changed later with update_subtask.",
    maxItems=50,
    examples=[[{"description": "Store the address with the account", "owner_user_id": 3}, {"description": "Test it"}]],
)
CUSTOM_FIELDS = array(
    FIELD_SETTING,
    "Values of custom fields to set on the card. Only fields available on the board can be set; fields that are not "
    "listed keep their value.",
    maxItems=50,
    examples=[[{"field_id": 2, "value": "major"}, {"field_id": 3, "value": True}]],
)
LINKS = array(
    LINK,
    "Links to other cards to create. Two cards can be linked only once. For a hierarchy use parent_card_id instead.",
    maxItems=30,
    examples=[[{"linked_card_id": 118, "type": "relates_to", "note": "Same address form"}]],
)
