"""The tools that create and change cards as a whole: create_card and update_card."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import array, boolean, integer, string
from mcp_optimizer_demo.kanban.card_changes import attach_parts, list_changes, scalar_changes
from mcp_optimizer_demo.kanban.card_fields import (
    CLEARABLE_FIELDS,
    CUSTOM_FIELDS,
    LINK,
    LINKS,
    LIST_FIELDS,
    SCALAR_FIELDS,
    SUBTASK,
    SUBTASKS,
    TITLE,
)
from mcp_optimizer_demo.kanban.card_outputs import CARD, CARD_ROW
from mcp_optimizer_demo.kanban.card_parts import add_subtask, remove_link, set_field_value
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import (
    ACTING_USER_ID,
    CARD_ID,
    EXCEEDING_REASON,
    IGNORE_WIP_LIMIT,
    POSITION,
    TIMESTAMP,
    identifier,
    identifiers,
)
from mcp_optimizer_demo.kanban.placement import check_wip_limits, enter_cell, exceeding_reason, log_move, target_cell
from mcp_optimizer_demo.kanban.records import NEW, Card
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import card_row, card_view, plain, subtasks_of
from mcp_optimizer_demo.toolserver import ADDS, Arguments, Hints, ToolFault

COPIED_FROM_TEMPLATE = (
    "description",
    "size",
    "priority",
    "color",
    "type_id",
    "co_owner_ids",
    "watcher_ids",
    "tag_ids",
    "class_of_service",
    "estimated_hours",
    "acceptance_criteria",
)

CREATE_PARAMETERS = {
    "title": TITLE,
    "column_id": identifier(
        "The ID of the column the card starts in, as returned by get_board_structure or list_columns. The column "
        'also determines the board. New work normally starts in a column of the section "backlog" or '
        '"requested".'
    ),
    "lane_id": identifier(
        "The ID of the lane (swimlane) the card is placed in. It must be on the same board as the column. Defaults to "
        "the top lane of the board."
    ),
    "position": POSITION,
    "board_id": identifier(
        "The ID of the board you expect the column to be on. Optional safety check: when given and the column "
        "belongs to another board, nothing is created and an error is returned."
    ),
    **SCALAR_FIELDS,
    **LIST_FIELDS,
    "co_owner_ids_to_remove": identifiers(
        "IDs of users to leave out of the co-owners copied from template_card_id. Without a template this has no "
        "effect.",
        maxItems=20,
    ),
    "watcher_ids_to_remove": identifiers(
        "IDs of users to leave out of the watchers copied from template_card_id.", maxItems=50
    ),
    "tag_ids_to_remove": identifiers(
        "IDs of tags to leave out of those copied from template_card_id. Without a template this has no effect.",
        maxItems=30,
    ),
    "subtasks": SUBTASKS,
    "custom_fields": CUSTOM_FIELDS,
    "links": LINKS,
    "template_card_id": identifier(
        "The ID of an existing card to copy from: description, size, priority, color, type, co-owners, watchers, "
        "tags, class of service, estimate, acceptance criteria and unfinished subtasks. Fields you pass yourself "
        "win over the copied ones."
    ),
    "comment": string(
        "Text of a first comment to store on the card, written in the name of the API user.",
        minLength=1,
        maxLength=5000,
    ),
    "block_reason": string(
        "When given, the card is created blocked, with this reason. Unblock it later with unblock_card.",
        minLength=1,
        maxLength=500,
    ),
    "ignore_wip_limit": IGNORE_WIP_LIMIT,
    "exceeding_reason": EXCEEDING_REASON,
}


@kanban_tool(
    "Create Card",
    "Create a card in a column of a board and return it. Only title and column_id are required; all other fields are "
    "optional and can be set in the same call: people, dates, tags, subtasks, custom fields, links to other cards and "
    "a parent. Call get_board_structure first to find the column, lane and type IDs, list_users for people, list_tags "
    "for tags and list_custom_fields for custom fields. The call either succeeds as a whole or changes nothing: an "
    "unknown ID in any field, a duplicate custom_id or a full column is reported as an error and no card is created. "
    "Creating a card in a column or lane that has reached its WIP limit is refused unless ignore_wip_limit and "
    "exceeding_reason are given. To change a card afterwards use update_card, to move it use move_card. Example: "
    '{"title": "Fix rounding in the invoice total", "column_id": 12, "priority": "high", "type_id": 2, '
    '"owner_user_id": 3, "tag_ids_to_add": [1]}.',
    CREATE_PARAMETERS,
    required=("title", "column_id"),
    hints=ADDS,
    output={"card": CARD},
)
def create_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    column, lane = target_cell(kanban, args["column_id"], args.get("lane_id"))
    if args.get("board_id", column.board_id) != column.board_id:
        raise ToolFault(
            f"Column {column.id} is on board {column.board_id}, not on board {args['board_id']}. "
            f"Call get_board_structure with board_id {args['board_id']} to choose a column."
        )
    reason = exceeding_reason(args.get("ignore_wip_limit", False), args.get("exceeding_reason"))
    check_wip_limits(kanban, None, column, lane, reason)
    board, now = kanban.boards.get(column.board_id), kanban.now()
    card = kanban.cards.add(Card(NEW, board.id, column.id, lane.id, 0, args["title"], now, now, now))
    card = replace(card, reporter_user_id=kanban.acting_user_id)
    if "template_card_id" in args:
        card = with_template(kanban, card, args["template_card_id"])
    card = replace(card, **scalar_changes(kanban, args, board, card))
    card = replace(card, **list_changes(kanban, args, board, card))
    card = enter_cell(kanban, card, column, lane, args.get("position"))
    kanban.record(card.id, "created", card.title)
    log_move(kanban, card, None, kanban.acting_user_id, reason)
    attach_parts(kanban, card, args)
    return {"card": card_view(kanban, card)}


def with_template(kanban: Kanban, card: Card, template_id: int) -> Card:
    template = kanban.cards.get(template_id)
    for subtask in subtasks_of(kanban, template.id):
        if subtask.finished_at is None:
            add_subtask(kanban, card.id, {"description": subtask.description})
    return replace(card, **{name: getattr(template, name) for name in COPIED_FROM_TEMPLATE})


UPDATE_PARAMETERS = {
    "card_id": CARD_ID,
    "title": TITLE,
    **CLEARABLE_FIELDS,
    **LIST_FIELDS,
    "subtasks_to_add": array(SUBTASK, "Subtasks (checklist items) to add to the card.", maxItems=50),
    "custom_fields": CUSTOM_FIELDS,
    "links_to_add": array(LINK, "Links to other cards to create.", maxItems=30),
    "link_ids_to_remove": identifiers("IDs of links to remove, as returned by list_card_links.", maxItems=30),
    "user_id": ACTING_USER_ID,
    "expected_updated_at": string(
        "The updated_at value you read last. When the card has been changed since then, nothing is written and an "
        "error is returned, so that you do not overwrite the change of somebody else.",
        format="date-time",
    ),
}


@kanban_tool(
    "Update Card",
    "Change fields of an existing card. Only the fields you pass are changed; pass null to clear a field that may be "
    "empty. Lists of people and tags are changed by naming what to add and what to remove, so that nothing else on "
    "the card is lost. The call either succeeds as a whole or changes nothing. It does not move the card: use "
    "move_card to change column, lane or position, block_card to block it and archive_card to take it off the board.",
    UPDATE_PARAMETERS,
    required=("card_id",),
    hints=Hints(),
    output={
        "card_id": integer("ID of the card."),
        "changed_fields": array({"type": "string"}, "Names of the fields whose value is different now."),
        "is_changed": boolean("False when every value was the same as before."),
        "updated_at": TIMESTAMP,
        "card": CARD_ROW,
    },
)
def update_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    expected = args.get("expected_updated_at")
    if expected is not None and expected != plain(card.updated_at):
        raise ToolFault(
            f"Card {card.id} was changed at {plain(card.updated_at)}, after the {expected} you expected. "
            "Read it again with get_card before changing it."
        )
    user = kanban.users.get(args.get("user_id", kanban.acting_user_id))
    board = kanban.boards.get(card.board_id)
    changes = scalar_changes(kanban, args, board, card) | list_changes(kanban, args, board, card)
    changed = [name for name, value in changes.items() if getattr(card, name) != value]
    changed += update_parts(kanban, card, args)
    if changed:
        card = kanban.cards.put(replace(card, **changes, updated_at=kanban.now()))
        kanban.record(card.id, "updated", ", ".join(changed), user.id)
    return {
        "card_id": card.id,
        "changed_fields": changed,
        "is_changed": bool(changed),
        "updated_at": plain(card.updated_at),
        "card": card_row(kanban, card),
    }


def update_parts(kanban: Kanban, card: Card, args: Arguments) -> list[str]:
    """Change the parts of the card, and return the lists that changed."""
    for subtask in args.get("subtasks_to_add", ()):
        add_subtask(kanban, card.id, subtask)
    before = kanban.values_of(card.id)
    for setting in args.get("custom_fields", ()):
        set_field_value(kanban, card, setting["field_id"], setting["value"])
    for link_id in args.get("link_ids_to_remove", ()):
        remove_link(kanban, card.id, link_id)
    attach_parts(kanban, card, {"links": args.get("links_to_add", ())})
    changed = {
        "subtasks": bool(args.get("subtasks_to_add")),
        "custom_fields": kanban.values_of(card.id) != before,
        "links": bool(args.get("links_to_add") or args.get("link_ids_to_remove")),
    }
    return [name for name, is_changed in changed.items() if is_changed]


TOOLS = (create_card, update_card)
