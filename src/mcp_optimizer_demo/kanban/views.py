"""How records are written as JSON, and how a list of them is paged.

Tool modules return these; a view adds the names a reader needs to the ids.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import date, datetime
from typing import Any, TypeVar

from mcp_optimizer_demo.kanban.records import (
    Blocker,
    Board,
    Card,
    Column,
    Comment,
    CustomField,
    Lane,
    Subtask,
    Tag,
    User,
    Workspace,
)
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.toolserver import Arguments, ToolFault

RowT = TypeVar("RowT")
View = dict[str, Any]

NESTED_VIEWS = ("subtasks", "comments", "custom_fields", "links", "blockers", "flow")


def plain(value: Any) -> Any:
    """A record's field as JSON: moments and days in ISO 8601, tuples as lists."""
    if isinstance(value, (datetime, date)):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, tuple):
        return list(value)
    return value


def fields_of(record: Any) -> View:
    return {name: plain(value) for name, value in asdict(record).items()}


def paged(rows: Sequence[RowT], arguments: Arguments, key: str, view: Callable[[RowT], View]) -> View:
    """One page of the rows under `key`, with how many there are in all."""
    page, per_page = arguments.get("page", 1), arguments.get("per_page", 50)
    chosen = rows[(page - 1) * per_page : page * per_page]
    return {"page": page, "per_page": per_page, "total": len(rows), key: [view(row) for row in chosen]}


def parse_day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        raise ToolFault(f"{name} is not a date: '{text}'. Use the form YYYY-MM-DD, e.g. 2026-03-31.") from None


def workspace_view(kanban: Kanban, workspace: Workspace) -> View:
    boards = [b for b in kanban.boards if b.workspace_id == workspace.id and not b.is_archived]
    return {**renamed(workspace, "workspace_id"), "board_count": len(boards)}


def board_view(kanban: Kanban, board: Board) -> View:
    cards = [card for card in kanban.cards if card.board_id == board.id and not card.is_archived]
    workspace = kanban.workspaces.get(board.workspace_id)
    return {**renamed(board, "board_id"), "workspace_name": workspace.name, "card_count": len(cards)}


def column_view(kanban: Kanban, column: Column) -> View:
    count = len(kanban.cards_in(column_id=column.id))
    return {**renamed(column, "column_id"), "card_count": count}


def lane_view(kanban: Kanban, lane: Lane) -> View:
    cards = [card for card in kanban.cards if card.lane_id == lane.id and not card.is_archived]
    return {**renamed(lane, "lane_id"), "card_count": len(cards)}


def user_view(user: User) -> View:
    return renamed(user, "user_id")


def tag_view(kanban: Kanban, tag: Tag) -> View:
    cards = [card for card in kanban.cards if tag.id in card.tag_ids and not card.is_archived]
    return {**renamed(tag, "tag_id"), "card_count": len(cards)}


def field_view(field: CustomField) -> View:
    return renamed(field, "field_id")


def subtask_view(subtask: Subtask) -> View:
    return {**renamed(subtask, "subtask_id"), "is_finished": subtask.finished_at is not None}


def comment_view(kanban: Kanban, comment: Comment) -> View:
    return {**renamed(comment, "comment_id"), "user_name": kanban.users.get(comment.user_id).name}


def blocker_view(kanban: Kanban, blocker: Blocker) -> View:
    end = blocker.ended_at or kanban.now()
    hours = round((end - blocker.started_at).total_seconds() / 3600, 1)
    return {**renamed(blocker, "blocker_id"), "is_open": blocker.ended_at is None, "blocked_hours": hours}


def card_row(kanban: Kanban, card: Card) -> View:
    """The card as lists show it."""
    column = kanban.columns.get(card.column_id)
    return {
        "card_id": card.id,
        "custom_id": card.custom_id,
        "title": card.title,
        "board_id": card.board_id,
        "column_id": card.column_id,
        "column_name": column.name,
        "section": column.section,
        "lane_id": card.lane_id,
        "position": card.position,
        "priority": card.priority,
        "type_id": card.type_id,
        "owner_user_id": card.owner_user_id,
        "deadline": plain(card.deadline),
        "size": card.size,
        "tag_ids": list(card.tag_ids),
        "is_blocked": kanban.open_blocker(card.id) is not None,
        "updated_at": plain(card.updated_at),
    }


def card_view(kanban: Kanban, card: Card, nested: Sequence[str] = NESTED_VIEWS) -> View:
    """The complete card, with the chosen parts."""
    view = {**renamed(card, "card_id"), **card_row(kanban, card)}
    makers: dict[str, Callable[[], Any]] = {
        "subtasks": lambda: [subtask_view(s) for s in subtasks_of(kanban, card.id)],
        "comments": lambda: [comment_view(kanban, c) for c in kanban.comments if c.card_id == card.id],
        "custom_fields": lambda: card_fields_view(kanban, card.id),
        "links": lambda: card_links_view(kanban, card.id),
        "blockers": lambda: [blocker_view(kanban, b) for b in kanban.blockers if b.card_id == card.id],
        "flow": lambda: flow_view(kanban, card),
    }
    return view | {name: makers[name]() for name in nested}


def subtasks_of(kanban: Kanban, card_id: int) -> list[Subtask]:
    return sorted((s for s in kanban.subtasks if s.card_id == card_id), key=lambda s: s.position)


def card_fields_view(kanban: Kanban, card_id: int) -> list[View]:
    return [
        {"field_id": field_id, "name": kanban.custom_fields.get(field_id).name, "value": value}
        for field_id, value in kanban.values_of(card_id).items()
    ]


def card_links_view(kanban: Kanban, card_id: int) -> list[View]:
    """The card's links as seen from this card; one made on the other card is reversed."""
    mirrored = {
        "blocks": "is_blocked_by",
        "is_blocked_by": "blocks",
        "duplicates": "is_duplicated_by",
        "is_duplicated_by": "duplicates",
    }
    rows = []
    for link in kanban.links:
        if card_id not in (link.card_id, link.linked_card_id):
            continue
        outgoing = link.card_id == card_id
        other = kanban.cards.get(link.linked_card_id if outgoing else link.card_id)
        kind = link.kind if outgoing else mirrored.get(link.kind, link.kind)
        rows.append(
            {
                "link_id": link.id,
                "type": kind,
                "linked_card_id": other.id,
                "linked_title": other.title,
                "linked_column_name": kanban.columns.get(other.column_id).name,
                "note": link.note,
            }
        )
    return rows


def flow_view(kanban: Kanban, card: Card) -> list[View]:
    """Every column the card has been in, when it came and how long it stayed."""
    moves = kanban.moves_of(card.id)
    ends = [move.at for move in moves[1:]] + [kanban.now()]
    return [
        {
            "column_id": move.to_column_id,
            "column_name": column_name(kanban, move.to_column_id),
            "entered_at": plain(move.at),
            "days": round((end - move.at).total_seconds() / 86400, 2),
        }
        for move, end in zip(moves, ends, strict=True)
    ]


def column_name(kanban: Kanban, column_id: int) -> str:
    return kanban.columns.get(column_id).name if column_id in kanban.columns else "(deleted column)"


def renamed(record: Any, id_name: str) -> View:
    """The record's fields, with its id under the name that tools use."""
    fields = fields_of(record)
    return {id_name: fields.pop("id"), **fields}
