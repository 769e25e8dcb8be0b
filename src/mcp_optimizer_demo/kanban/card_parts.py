"""The parts of a card: subtasks, comments, custom field values, links, parents and blockers.

The card tools and the tools for each part change these here, so both follow the same rules.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.kanban.records import NEW, Blocker, Card, CardLink, Comment, CustomField, FieldValue, Subtask
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import parse_day, subtasks_of
from mcp_optimizer_demo.toolserver import ToolFault


def add_subtask(kanban: Kanban, card_id: int, wanted: Mapping[str, Any]) -> Subtask:
    """Add a subtask at its position, or at the end, and shift the ones below."""
    siblings = subtasks_of(kanban, card_id)
    index = min(wanted.get("position", len(siblings)), len(siblings))
    owner = wanted.get("owner_user_id")
    if owner is not None:
        kanban.users.get(owner)
    deadline = parse_day("subtask deadline", wanted["deadline"]) if wanted.get("deadline") else None
    finished_at = kanban.now() if wanted.get("is_finished") else None
    subtask = kanban.subtasks.add(Subtask(NEW, card_id, index, wanted["description"], owner, deadline, finished_at))
    renumber_subtasks(kanban, [*siblings[:index], subtask, *siblings[index:]])
    kanban.record(card_id, "subtask_added", subtask.description)
    return subtask


def renumber_subtasks(kanban: Kanban, ordered: list[Subtask]) -> None:
    for index, subtask in enumerate(ordered):
        kanban.subtasks.put(replace(subtask, position=index))


def add_comment(kanban: Kanban, card_id: int, text: str, user_id: int | None) -> Comment:
    author = kanban.users.get(kanban.acting_user_id if user_id is None else user_id)
    now = kanban.now()
    comment = kanban.comments.add(Comment(NEW, card_id, author.id, text, now, now))
    kanban.record(card_id, "comment_added", text[:80], author.id)
    return comment


def set_field_value(kanban: Kanban, card: Card, field_id: int, value: Any) -> None:
    """Set a custom field of the card, or clear it with None."""
    field = kanban.custom_fields.get(field_id)
    board = kanban.boards.get(card.board_id)
    if field.board_id not in (None, board.id) or field.workspace_id not in (None, board.workspace_id):
        raise ToolFault(
            f"Custom field {field.id} '{field.name}' is not available on board {board.id}. "
            f"Call list_custom_fields with board_id {board.id}."
        )
    held = next((v for v in kanban.field_values if v.card_id == card.id and v.field_id == field.id), None)
    if value is None:
        if held:
            kanban.field_values.remove(held.id)
    elif held:
        kanban.field_values.put(replace(held, value=checked_value(field, value)))
    else:
        checked = checked_value(field, value)
        kanban.field_values.add(FieldValue(NEW, card.id, field.id, checked))
    kanban.record(card.id, "custom_field_set", f"{field.name} = {value}")


def checked_value(field: CustomField, value: Any) -> str | float | bool:
    """The value when it fits the kind of field."""
    if field.kind == "checkbox" and isinstance(value, bool):
        return value
    if field.kind == "number" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if field.kind == "dropdown" and value in field.options:
        return str(value)
    if field.kind == "date" and isinstance(value, str):
        return parse_day(f"Value of '{field.name}'", value).isoformat()
    if field.kind == "text" and isinstance(value, str):
        return value
    allowed = f" (one of: {', '.join(field.options)})" if field.options else ""
    raise ToolFault(f"Custom field {field.id} '{field.name}' takes a {field.kind} value{allowed}, not {value!r}.")


def add_link(kanban: Kanban, card_id: int, kind: str, linked_card_id: int, note: str = "") -> CardLink:
    other = kanban.cards.get(linked_card_id)
    if other.id == card_id:
        raise ToolFault(f"Card {card_id} cannot be linked to itself.")
    if any({link.card_id, link.linked_card_id} == {card_id, other.id} for link in kanban.links):
        raise ToolFault(
            f"Cards {card_id} and {other.id} are already linked. Remove the link with remove_card_link first."
        )
    link = kanban.links.add(CardLink(NEW, card_id, kind, other.id, note))
    kanban.record(card_id, "link_added", f"{kind} card {other.id}")
    return link


def remove_link(kanban: Kanban, card_id: int, link_id: int) -> None:
    link = kanban.links.get(link_id)
    if card_id not in (link.card_id, link.linked_card_id):
        raise ToolFault(f"Link {link_id} joins cards {link.card_id} and {link.linked_card_id}, not card {card_id}.")
    kanban.links.remove(link_id)
    kanban.record(card_id, "link_removed", f"link {link_id}")


def check_parent(kanban: Kanban, card_id: int | None, parent_card_id: int) -> None:
    """Refuse a parent that is the card itself or one of its own descendants."""
    ancestor: int | None = kanban.cards.get(parent_card_id).id
    while ancestor is not None:
        if ancestor == card_id:
            raise ToolFault(
                f"Card {parent_card_id} cannot be the parent of card {card_id}: it is the same card or one of "
                "its descendants."
            )
        ancestor = kanban.cards.get(ancestor).parent_card_id


def block(kanban: Kanban, card_id: int, reason: str, blocking_card_id: int | None, user_id: int | None) -> Blocker:
    if kanban.open_blocker(card_id):
        raise ToolFault(f"Card {card_id} is already blocked. Unblock it with unblock_card first.")
    if blocking_card_id is not None and kanban.cards.get(blocking_card_id).id == card_id:
        raise ToolFault(f"Card {card_id} cannot block itself. Name another blocking_card_id.")
    user = kanban.users.get(kanban.acting_user_id if user_id is None else user_id)
    now = kanban.now()
    blocker = kanban.blockers.add(Blocker(NEW, card_id, user.id, reason, blocking_card_id, now))
    kanban.record(card_id, "blocked", reason, user.id)
    return blocker


def delete_everything_on(kanban: Kanban, card_id: int) -> None:
    """Remove the parts of a card that is deleted, and its children's reference to it."""
    for subtask in kanban.subtasks:
        if subtask.card_id == card_id:
            kanban.subtasks.remove(subtask.id)
    for comment in kanban.comments:
        if comment.card_id == card_id:
            kanban.comments.remove(comment.id)
    for value in kanban.field_values:
        if value.card_id == card_id:
            kanban.field_values.remove(value.id)
    for link in kanban.links:
        if card_id in (link.card_id, link.linked_card_id):
            kanban.links.remove(link.id)
    for blocker in kanban.blockers:
        if blocker.card_id == card_id:
            kanban.blockers.remove(blocker.id)
        elif blocker.blocking_card_id == card_id:
            kanban.blockers.put(replace(blocker, blocking_card_id=None))
    for move in kanban.moves:
        if move.card_id == card_id:
            kanban.moves.remove(move.id)
    for card in kanban.cards:
        if card.parent_card_id == card_id:
            kanban.cards.put(replace(card, parent_card_id=None))
