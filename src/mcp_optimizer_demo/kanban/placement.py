"""Where a card is: cells of a board, positions inside them, and the limits on work in progress.

Called by everything that creates, moves, archives or deletes cards; records each move for the analytics.
"""

from dataclasses import replace

from mcp_optimizer_demo.kanban.records import NEW, Card, Column, Lane, Move
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.toolserver import ToolFault


def target_cell(kanban: Kanban, column_id: int, lane_id: int | None) -> tuple[Column, Lane]:
    """The column and lane a card should go to; without a lane, the top lane of the column's board."""
    column = kanban.columns.get(column_id)
    board = kanban.boards.get(column.board_id)
    if board.is_archived:
        raise ToolFault(f"Board {board.id} '{board.name}' is archived. Restore it with archive_board first.")
    lane = kanban.lanes_of(board.id)[0] if lane_id is None else kanban.lanes.get(lane_id)
    if lane.board_id != board.id:
        raise ToolFault(
            f"Lane {lane.id} belongs to board {lane.board_id}, but column {column.id} is on board {board.id}. "
            f"Call list_lanes with board_id {board.id} to choose a lane of the same board."
        )
    return column, lane


def check_wip_limits(kanban: Kanban, card_id: int | None, column: Column, lane: Lane, reason: str) -> None:
    """Refuse a card that would exceed a column's or lane's limit, unless a reason to exceed is given."""
    if reason:
        return
    in_column = [card for card in kanban.cards_in(column_id=column.id) if card.id != card_id]
    if column.wip_limit and len(in_column) >= column.wip_limit:
        raise wip_fault("Column", column.id, column.name, len(in_column), column.wip_limit)
    if not lane.wip_limit or column.section != "progress":
        return
    active = {c.id for c in kanban.columns_of(lane.board_id) if c.section == "progress"}
    in_lane = [
        card
        for card in kanban.cards
        if card.lane_id == lane.id and card.column_id in active and not card.is_archived and card.id != card_id
    ]
    if len(in_lane) >= lane.wip_limit:
        raise wip_fault("Lane", lane.id, lane.name, len(in_lane), lane.wip_limit)


def wip_fault(kind: str, record_id: int, name: str, count: int, limit: int) -> ToolFault:
    return ToolFault(
        f"WIP limit reached: {kind.lower()} {record_id} '{name}' holds {count} of {limit} cards. "
        "Finish or move a card first, or exceed the limit on purpose by passing ignore_wip_limit: true "
        "together with an exceeding_reason."
    )


def exceeding_reason(ignore: bool, reason: str | None) -> str:
    """The reason to go over a WIP limit; empty when the limit is to be respected."""
    if not ignore:
        return ""
    if not reason or not reason.strip():
        raise ToolFault("ignore_wip_limit needs an exceeding_reason that says why the limit may be exceeded.")
    return reason.strip()


def enter_cell(kanban: Kanban, card: Card, column: Column, lane: Lane, position: int | None) -> Card:
    """Put the card into the cell at the position (at the end without one), shifting the cards below it."""
    others = [c for c in kanban.cards_in(column_id=column.id, lane_id=lane.id) if c.id != card.id]
    index = len(others) if position is None else min(position, len(others))
    placed = replace(card, board_id=column.board_id, column_id=column.id, lane_id=lane.id, position=index)
    kanban.cards.put(placed)
    renumber(kanban, [*others[:index], placed, *others[index:]])
    return kanban.cards.get(card.id)


def close_gap(kanban: Kanban, column_id: int, lane_id: int) -> None:
    """Renumber a cell after a card left it."""
    renumber(kanban, kanban.cards_in(column_id=column_id, lane_id=lane_id))


def renumber(kanban: Kanban, ordered: list[Card]) -> None:
    for index, card in enumerate(ordered):
        if card.position != index:
            kanban.cards.put(replace(card, position=index))


def move_card(
    kanban: Kanban, card: Card, column: Column, lane: Lane, position: int | None, reason: str, user_id: int
) -> Card:
    """Move the card, close the gap it leaves, and record the move when it changes column or lane."""
    if card.is_archived:
        raise ToolFault(f"Card {card.id} is archived and cannot move. Restore it with archive_card first.")
    changes_cell = (card.column_id, card.lane_id) != (column.id, lane.id)
    if changes_cell:
        check_wip_limits(kanban, card.id, column, lane, reason)
    now = kanban.now()
    entered = now if card.column_id != column.id else card.entered_column_at
    moved = enter_cell(kanban, replace(card, updated_at=now, entered_column_at=entered), column, lane, position)
    if changes_cell:
        close_gap(kanban, card.column_id, card.lane_id)
        log_move(kanban, moved, card.column_id, user_id, reason)
    return moved


def log_move(kanban: Kanban, card: Card, from_column_id: int | None, user_id: int, reason: str = "") -> None:
    now = kanban.now()
    kanban.moves.add(Move(NEW, card.id, now, user_id, from_column_id, card.column_id, card.lane_id, reason))
    source = "nowhere" if from_column_id is None else f"'{kanban.columns.get(from_column_id).name}'"
    detail = f"from {source} to '{kanban.columns.get(card.column_id).name}'"
    kanban.record(card.id, "moved", f"{detail}; over the limit: {reason}" if reason else detail, user_id)
