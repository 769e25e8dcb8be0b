"""The values of a kanban instance: workspaces, boards, cards and their parts.

Every record is frozen; a change is a new record in the place of the old one.
"""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

Section = Literal["backlog", "requested", "progress", "done"]
SECTIONS: tuple[Section, ...] = ("backlog", "requested", "progress", "done")
PRIORITIES = ("critical", "high", "average", "low")
SERVICE_CLASSES = ("expedite", "fixed_date", "standard", "intangible")
LINK_KINDS = ("relates_to", "blocks", "is_blocked_by", "duplicates", "is_duplicated_by")
FIELD_KINDS = ("text", "number", "date", "dropdown", "checkbox")
ROLES = ("owner", "manager", "member", "viewer")


NEW = 0
"""The id of a record that no table holds yet; the table gives it one."""


@dataclass(frozen=True, slots=True)
class Record:
    id: int


@dataclass(frozen=True, slots=True)
class Workspace(Record):
    name: str
    description: str
    kind: str
    is_archived: bool = False


@dataclass(frozen=True, slots=True)
class User(Record):
    username: str
    name: str
    email: str
    role: str
    workspace_ids: tuple[int, ...]
    is_enabled: bool = True


@dataclass(frozen=True, slots=True)
class Board(Record):
    workspace_id: int
    name: str
    description: str
    is_archived: bool = False


@dataclass(frozen=True, slots=True)
class Column(Record):
    board_id: int
    name: str
    section: Section
    position: int
    wip_limit: int = 0
    counts_in_cycle_time: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class Lane(Record):
    board_id: int
    name: str
    position: int
    wip_limit: int = 0
    color: str = "#D5D5D5"
    description: str = ""


@dataclass(frozen=True, slots=True)
class CardType(Record):
    name: str
    color: str


@dataclass(frozen=True, slots=True)
class Card(Record):
    board_id: int
    column_id: int
    lane_id: int
    position: int
    title: str
    created_at: datetime
    updated_at: datetime
    entered_column_at: datetime
    description: str = ""
    custom_id: str | None = None
    deadline: date | None = None
    size: float | None = None
    priority: str = "average"
    color: str = "#42AD49"
    type_id: int = 1
    owner_user_id: int | None = None
    reporter_user_id: int | None = None
    co_owner_ids: tuple[int, ...] = ()
    watcher_ids: tuple[int, ...] = ()
    tag_ids: tuple[int, ...] = ()
    class_of_service: str = "standard"
    planned_start_date: date | None = None
    planned_end_date: date | None = None
    estimated_hours: float | None = None
    reference: str | None = None
    external_url: str | None = None
    acceptance_criteria: str | None = None
    release: str | None = None
    parent_card_id: int | None = None
    is_archived: bool = False


@dataclass(frozen=True, slots=True)
class Subtask(Record):
    card_id: int
    position: int
    description: str
    owner_user_id: int | None = None
    deadline: date | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Comment(Record):
    card_id: int
    user_id: int
    text: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Tag(Record):
    name: str
    color: str
    workspace_id: int | None = None
    board_id: int | None = None


@dataclass(frozen=True, slots=True)
class CustomField(Record):
    name: str
    kind: str
    description: str = ""
    options: tuple[str, ...] = ()
    workspace_id: int | None = None
    board_id: int | None = None


@dataclass(frozen=True, slots=True)
class FieldValue(Record):
    card_id: int
    field_id: int
    value: str | float | bool


@dataclass(frozen=True, slots=True)
class CardLink(Record):
    card_id: int
    kind: str
    linked_card_id: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Blocker(Record):
    card_id: int
    user_id: int
    reason: str
    blocking_card_id: int | None
    started_at: datetime
    ended_at: datetime | None = None
    resolution: str = ""


@dataclass(frozen=True, slots=True)
class Move(Record):
    """A card entering a column; the first move of a card is its creation and comes from nowhere."""

    card_id: int
    at: datetime
    user_id: int
    from_column_id: int | None
    to_column_id: int
    to_lane_id: int
    exceeding_reason: str = ""


@dataclass(frozen=True, slots=True)
class HistoryLine(Record):
    """One line of a card's history."""

    card_id: int
    at: datetime
    user_id: int
    action: str
    detail: str
