"""One kanban instance's tables, its clock and the user it acts for; and the set of instances.

Tool modules read and change records through these tables; nothing here knows of tools or schemas.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from mcp_optimizer_demo.kanban.records import (
    NEW,
    Blocker,
    Board,
    Card,
    CardLink,
    CardType,
    Column,
    Comment,
    CustomField,
    FieldValue,
    HistoryLine,
    Lane,
    Move,
    Record,
    Subtask,
    Tag,
    User,
    Workspace,
)
from mcp_optimizer_demo.toolserver import ToolFault

RecordT = TypeVar("RecordT", bound=Record)
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


class RecordTable(Generic[RecordT]):
    """Records of one kind by id, in the order they were added."""

    def __init__(self, kind: str, listed_by: str, first_id: int = 1) -> None:
        self._kind = kind
        self._listed_by = listed_by
        self._next_id = first_id
        self._rows: dict[int, RecordT] = {}

    def __iter__(self) -> Iterator[RecordT]:
        return iter(list(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, record_id: int) -> bool:
        return record_id in self._rows

    def get(self, record_id: int) -> RecordT:
        try:
            return self._rows[record_id]
        except KeyError:
            raise ToolFault(
                f"There is no {self._kind} with id {record_id}. Call {self._listed_by} to see the ids that exist."
            ) from None

    def add(self, record: RecordT) -> RecordT:
        """Store the record under the next free id."""
        stored = replace(record, id=self._next_id)
        self._next_id += 1
        self._rows[stored.id] = stored
        return stored

    def put(self, record: RecordT) -> RecordT:
        """Replace the record that has the same id."""
        self._rows[record.id] = record
        return record

    def remove(self, record_id: int) -> None:
        del self._rows[record_id]

    def snapshot(self) -> tuple[int, dict[int, RecordT]]:
        return self._next_id, dict(self._rows)

    def restore(self, snapshot: tuple[int, dict[int, RecordT]]) -> None:
        self._next_id, rows = snapshot
        self._rows = dict(rows)


class Kanban:
    """The whole state of one kanban instance."""

    def __init__(self, company: str, clock: Clock = utc_now, acting_user_id: int = 1) -> None:
        self.company = company
        self.now = clock
        self.started_at = clock()
        self.acting_user_id = acting_user_id
        self.workspaces: RecordTable[Workspace] = RecordTable("workspace", "list_workspaces")
        self.users: RecordTable[User] = RecordTable("user", "list_users")
        self.boards: RecordTable[Board] = RecordTable("board", "list_boards")
        self.columns: RecordTable[Column] = RecordTable("column", "list_columns", first_id=11)
        self.lanes: RecordTable[Lane] = RecordTable("lane", "list_lanes", first_id=51)
        self.card_types: RecordTable[CardType] = RecordTable("card type", "get_board_structure")
        self.cards: RecordTable[Card] = RecordTable("card", "list_cards", first_id=101)
        self.subtasks: RecordTable[Subtask] = RecordTable("subtask", "list_subtasks", first_id=501)
        self.comments: RecordTable[Comment] = RecordTable("comment", "list_comments", first_id=701)
        self.tags: RecordTable[Tag] = RecordTable("tag", "list_tags")
        self.custom_fields: RecordTable[CustomField] = RecordTable("custom field", "list_custom_fields")
        self.field_values: RecordTable[FieldValue] = RecordTable("custom field value", "list_custom_fields")
        self.links: RecordTable[CardLink] = RecordTable("card link", "list_card_links", first_id=901)
        self.blockers: RecordTable[Blocker] = RecordTable("blocker", "list_blocked_cards")
        self.moves: RecordTable[Move] = RecordTable("move", "get_card_history")
        self.events: RecordTable[HistoryLine] = RecordTable("event", "get_card_history")

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undo every change made inside when it ends in a fault."""
        before = self.snapshot()
        try:
            yield
        except ToolFault:
            self.restore(before)
            raise

    def use_clock(self, clock: Clock) -> None:
        """From now on it is as late as this clock says."""
        self.now = clock

    def snapshot(self) -> dict[str, Any]:
        """What every table holds now; records are frozen, so this copies no record."""
        return {name: table.snapshot() for name, table in vars(self).items() if isinstance(table, RecordTable)}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        for name, rows in snapshot.items():
            getattr(self, name).restore(rows)

    def record(self, card_id: int, action: str, detail: str = "", user_id: int | None = None) -> None:
        """Add a line to the card's history."""
        user = self.acting_user_id if user_id is None else user_id
        self.events.add(HistoryLine(NEW, card_id, self.now(), user, action, detail))

    def columns_of(self, board_id: int) -> list[Column]:
        return sorted((c for c in self.columns if c.board_id == board_id), key=lambda c: c.position)

    def lanes_of(self, board_id: int) -> list[Lane]:
        return sorted((lane for lane in self.lanes if lane.board_id == board_id), key=lambda r: r.position)

    def cards_in(self, *, column_id: int, lane_id: int | None = None) -> list[Card]:
        """The cards on the board in one column (and lane), top first."""
        found = (
            card
            for card in self.cards
            if card.column_id == column_id and lane_id in (None, card.lane_id) and not card.is_archived
        )
        return sorted(found, key=lambda card: (card.lane_id, card.position))

    def moves_of(self, card_id: int) -> list[Move]:
        return [move for move in self.moves if move.card_id == card_id]

    def open_blocker(self, card_id: int) -> Blocker | None:
        return next((b for b in self.blockers if b.card_id == card_id and b.ended_at is None), None)

    def values_of(self, card_id: int) -> dict[int, str | float | bool]:
        """The card's custom field values by field id."""
        return {value.field_id: value.value for value in self.field_values if value.card_id == card_id}


@dataclass(frozen=True, slots=True)
class Installation:
    """The kanban instances one server offers, by name; calls that name none go to the default."""

    instances: Mapping[str, Kanban]
    default: str

    def instance(self, arguments: Mapping[str, Any]) -> Kanban:
        name = arguments.get("instance", self.default)
        if name not in self.instances:
            raise ToolFault(
                f"There is no instance named '{name}'. Configured instances: {', '.join(self.instances)}. "
                "Call list_instances for details."
            )
        return self.instances[name]
