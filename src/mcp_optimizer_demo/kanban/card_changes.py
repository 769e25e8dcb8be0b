"""What create_card and update_card do with their arguments: checks them, and turns them into changes.

Nothing here stores a card; placement does that.
"""

from collections.abc import Iterable
from datetime import date
from typing import Any

from mcp_optimizer_demo.kanban.card_fields import SCALAR_FIELDS
from mcp_optimizer_demo.kanban.card_parts import (
    add_comment,
    add_link,
    add_subtask,
    block,
    check_parent,
    set_field_value,
)
from mcp_optimizer_demo.kanban.records import Board, Card
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import parse_day
from mcp_optimizer_demo.toolserver import Arguments, ToolFault

DATES = ("deadline", "planned_start_date", "planned_end_date")


def scalar_changes(kanban: Kanban, args: Arguments, board: Board, card: Card | None) -> dict[str, Any]:
    """The card's own fields that the arguments set, checked against the rest of the state."""
    changes = {name: args[name] for name in ("title", *SCALAR_FIELDS) if name in args}
    for name in DATES:
        if changes.get(name) is not None:
            changes[name] = parse_day(name, changes[name])
    if "type_id" in changes:
        card_type = kanban.card_types.get(changes["type_id"])
        changes.setdefault("color", card_type.color)
    if changes.get("owner_user_id") is not None:
        check_member(kanban, changes["owner_user_id"], board)
    if "reporter_user_id" in changes:
        kanban.users.get(changes["reporter_user_id"])
    if changes.get("parent_card_id") is not None:
        check_parent(kanban, card.id if card else None, changes["parent_card_id"])
    if changes.get("custom_id") is not None:
        check_custom_id(kanban, changes["custom_id"], card)
    check_dates(changes, card)
    return changes


def check_member(kanban: Kanban, user_id: int, board: Board) -> None:
    user = kanban.users.get(user_id)
    if not user.is_enabled:
        raise ToolFault(f"User {user.id} '{user.name}' is disabled and cannot be assigned.")
    if board.workspace_id not in user.workspace_ids:
        raise ToolFault(
            f"User {user.id} '{user.name}' is not a member of workspace {board.workspace_id}. "
            f"Call list_users with workspace_id {board.workspace_id} to see its members."
        )


def check_custom_id(kanban: Kanban, custom_id: str, card: Card | None) -> None:
    for other in kanban.cards:
        if other.custom_id == custom_id and (card is None or other.id != card.id):
            raise ToolFault(f"custom_id '{custom_id}' is already used by card {other.id}. Choose another one.")


def check_dates(changes: dict[str, Any], card: Card | None) -> None:
    def field(name: str) -> Any:
        return changes.get(name, getattr(card, name, None))

    start: date | None = field("planned_start_date")
    end: date | None = field("planned_end_date")
    if start and end and start > end:
        raise ToolFault(f"planned_start_date {start} is after planned_end_date {end}.")
    if field("class_of_service") == "fixed_date" and field("deadline") is None:
        raise ToolFault("A card with class_of_service 'fixed_date' needs a deadline.")


def list_changes(kanban: Kanban, args: Arguments, board: Board, card: Card) -> dict[str, Any]:
    """The card's co-owners, watchers and tags after adding and removing."""
    for user_id in args.get("co_owner_ids_to_add", ()):
        check_member(kanban, user_id, board)
    for user_id in args.get("watcher_ids_to_add", ()):
        kanban.users.get(user_id)
    for tag_id in args.get("tag_ids_to_add", ()):
        check_tag(kanban, tag_id, board)
    return {
        "co_owner_ids": edited(card.co_owner_ids, args, "co_owner_ids"),
        "watcher_ids": edited(card.watcher_ids, args, "watcher_ids"),
        "tag_ids": edited(card.tag_ids, args, "tag_ids"),
    }


def check_tag(kanban: Kanban, tag_id: int, board: Board) -> None:
    tag = kanban.tags.get(tag_id)
    if tag.board_id not in (None, board.id) or tag.workspace_id not in (None, board.workspace_id):
        raise ToolFault(
            f"Tag {tag.id} '{tag.name}' cannot be used on board {board.id}. "
            f"Call list_tags with board_id {board.id} to see the tags that can."
        )


def edited(current: Iterable[int], args: Arguments, name: str) -> tuple[int, ...]:
    removed = set(args.get(f"{name}_to_remove", ()))
    return tuple(i for i in dict.fromkeys([*current, *args.get(f"{name}_to_add", ())]) if i not in removed)


def attach_parts(kanban: Kanban, card: Card, args: Arguments) -> None:
    """Create the subtasks, custom field values, links, comment and blocker the arguments ask for."""
    for subtask in args.get("subtasks", ()):
        add_subtask(kanban, card.id, subtask)
    for setting in args.get("custom_fields", ()):
        set_field_value(kanban, card, setting["field_id"], setting["value"])
    for link in args.get("links", ()):
        add_link(kanban, card.id, link["type"], link["linked_card_id"], link.get("note", ""))
    if "comment" in args:
        add_comment(kanban, card.id, args["comment"], None)
    if "block_reason" in args:
        block(kanban, card.id, args["block_reason"], None, None)
