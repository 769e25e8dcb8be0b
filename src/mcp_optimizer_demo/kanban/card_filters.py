"""The filters of list_cards, each a parameter schema with its test, and the scope of other tools.

A filter sees one card and the state, and changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, boolean, integer, number, one_of, record, string
from mcp_optimizer_demo.kanban.analytics import finished_at
from mcp_optimizer_demo.kanban.parameters import FOR_USER, IN_BOARD, IN_WORKSPACE, SECTION, identifier, identifiers
from mcp_optimizer_demo.kanban.records import PRIORITIES, SERVICE_CLASSES, Card
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import parse_day
from mcp_optimizer_demo.toolserver import Arguments


@dataclass(frozen=True, slots=True)
class CardFilter:
    """A parameter of list_cards and the cards it lets through."""

    schema: Schema
    admits: Callable[[Kanban, Card, Any], bool]


def ids(description: str, attribute: str) -> CardFilter:
    """A list of ids, one of which the card's attribute must be."""
    return CardFilter(
        identifiers(description, maxItems=100), lambda _, card, wanted: getattr(card, attribute) in wanted
    )


def since(what: str, attribute: str) -> CardFilter:
    """A first day for one of the card's dates."""
    return CardFilter(
        string(
            f"Only return cards {what} on this day or later, in ISO 8601 format (YYYY-MM-DD).",
            format="date",
            examples=["2026-01-01"],
        ),
        lambda _, card, text: has_day(card, attribute) and day_of(card, attribute) >= parse_day("date", text),
    )


def until(what: str, attribute: str) -> CardFilter:
    """A last day for one of the card's dates."""
    return CardFilter(
        string(
            f"Only return cards {what} on this day or earlier, in ISO 8601 format (YYYY-MM-DD).",
            format="date",
            examples=["2026-03-31"],
        ),
        lambda _, card, text: has_day(card, attribute) and day_of(card, attribute) <= parse_day("date", text),
    )


def has_day(card: Card, attribute: str) -> bool:
    return getattr(card, attribute) is not None


def day_of(card: Card, attribute: str) -> Any:
    value = getattr(card, attribute)
    return value.date() if hasattr(value, "date") else value


def finish_day(kanban: Kanban, card: Card) -> date | None:
    moment = finished_at(kanban, card, kanban.moves_of(card.id))
    return moment.date() if moment else None


def in_workspace(kanban: Kanban, card: Card, workspace_id: int) -> bool:
    return kanban.boards.get(card.board_id).workspace_id == workspace_id


def has_user(_kanban: Kanban, card: Card, user_id: int) -> bool:
    return card.owner_user_id == user_id or user_id in card.co_owner_ids


def has_fields(kanban: Kanban, card: Card, wanted: list[dict[str, Any]]) -> bool:
    values = kanban.values_of(card.id)
    return all(values.get(item["field_id"]) == item["value"] for item in wanted)


FIELD_FILTER = record(
    {
        "field_id": identifier("The ID of the custom field, as returned by list_custom_fields."),
        "value": {
            "type": ["string", "number", "boolean"],
            "description": "The value the field must have. Text is compared exactly.",
        },
    },
    required=("field_id", "value"),
)

CARD_FILTERS: dict[str, CardFilter] = {
    "board_id": CardFilter(IN_BOARD, lambda _, card, wanted: card.board_id == wanted),
    "workspace_id": CardFilter(IN_WORKSPACE, in_workspace),
    "user_id": CardFilter(FOR_USER, has_user),
    "card_ids": ids(
        "Only return the cards with these IDs, e.g. to read several known cards at once together with expand.", "id"
    ),
    "custom_ids": CardFilter(
        array(
            {"type": "string", "minLength": 1},
            "Only return the cards with these custom IDs. They must match exactly, including upper and lower case.",
            maxItems=100,
        ),
        lambda _, card, wanted: card.custom_id in wanted,
    ),
    "column_ids": ids(
        "Only return cards that are in one of these columns now. See list_columns for the IDs of a board's columns.",
        "column_id",
    ),
    "lane_ids": ids(
        "Only return cards that are in one of these lanes now. See list_lanes for the IDs of a board's lanes.",
        "lane_id",
    ),
    "sections": CardFilter(
        array(SECTION, "Only return cards in columns of one of these sections.", maxItems=4),
        lambda kanban, card, wanted: kanban.columns.get(card.column_id).section in wanted,
    ),
    "title_contains": CardFilter(
        string(
            "Only return cards whose title contains this text; case does not matter. To search in descriptions and "
            "comments as well, use search_cards.",
            minLength=1,
            maxLength=250,
        ),
        lambda _, card, wanted: wanted.casefold() in card.title.casefold(),
    ),
    "owner_user_ids": ids(
        "Only return cards owned by one of these users. Co-owners are not considered: use user_id for that.",
        "owner_user_id",
    ),
    "is_unassigned": CardFilter(
        boolean("True: only cards without an owner. False: only cards that have one."),
        lambda _, card, wanted: (card.owner_user_id is None) == wanted,
    ),
    "reporter_user_ids": ids(
        "Only return cards requested by one of these users, whoever works on them.", "reporter_user_id"
    ),
    "watcher_user_ids": CardFilter(
        identifiers("Only return cards that at least one of these users watches.", maxItems=20),
        lambda _, card, wanted: bool(set(wanted) & set(card.watcher_ids)),
    ),
    "tag_ids": CardFilter(
        identifiers("Only return cards that carry at least one of these tags. See list_tags for the IDs.", maxItems=30),
        lambda _, card, wanted: bool(set(wanted) & set(card.tag_ids)),
    ),
    "tag_ids_all": CardFilter(
        identifiers("Only return cards that carry every one of these tags. Can be combined with tag_ids.", maxItems=30),
        lambda _, card, wanted: set(wanted) <= set(card.tag_ids),
    ),
    "type_ids": ids("Only return cards of one of these types, as in get_board_structure.", "type_id"),
    "priorities": CardFilter(
        array(one_of(PRIORITIES, "A priority."), "Only return cards of these priorities.", maxItems=4),
        lambda _, card, wanted: card.priority in wanted,
    ),
    "classes_of_service": CardFilter(
        array(one_of(SERVICE_CLASSES, "A class of service."), "Only return cards of these classes of service."),
        lambda _, card, wanted: card.class_of_service in wanted,
    ),
    "colors": CardFilter(
        array({"type": "string", "pattern": "^#[0-9A-Fa-f]{6}$"}, 'Only return cards of these colors, e.g. "#F37325".'),
        lambda _, card, wanted: card.color.upper() in {color.upper() for color in wanted},
    ),
    "release": CardFilter(
        string("Only return cards planned for this release; the name must match exactly.", maxLength=60),
        lambda _, card, wanted: card.release == wanted,
    ),
    "parent_card_id": CardFilter(
        identifier("Only return the direct children of this card. For deeper levels use list_child_cards."),
        lambda _, card, wanted: card.parent_card_id == wanted,
    ),
    "is_blocked": CardFilter(
        boolean(
            "True: only cards with an open blocker. False: only cards that are not blocked. For the reasons see "
            "list_blocked_cards."
        ),
        lambda kanban, card, wanted: (kanban.open_blocker(card.id) is not None) == wanted,
    ),
    "is_overdue": CardFilter(
        boolean(
            "True: only unfinished cards whose deadline has passed. False: all other cards, those without a deadline "
            "included."
        ),
        lambda kanban, card, wanted: is_overdue(kanban, card) == wanted,
    ),
    "min_size": CardFilter(
        number("Only return cards of at least this size. Cards without a size are left out.", minimum=0),
        lambda _, card, wanted: card.size is not None and card.size >= wanted,
    ),
    "max_size": CardFilter(
        number("Only return cards of at most this size. Cards without a size are left out.", minimum=0),
        lambda _, card, wanted: card.size is not None and card.size <= wanted,
    ),
    "min_days_in_column": CardFilter(
        integer(
            "Only return cards that have been in their current column for at least this many full days, e.g. to find "
            "work that is stuck.",
            minimum=0,
        ),
        lambda kanban, card, wanted: (kanban.now() - card.entered_column_at).days >= wanted,
    ),
    "deadline_from": since("with a deadline", "deadline"),
    "deadline_to": until("with a deadline", "deadline"),
    "created_from": since("created", "created_at"),
    "created_to": until("created", "created_at"),
    "updated_from": since("last changed", "updated_at"),
    "updated_to": until("last changed", "updated_at"),
    "planned_start_from": since("with a planned start", "planned_start_date"),
    "planned_start_to": until("with a planned start", "planned_start_date"),
    "finished_from": CardFilter(
        string(
            'Only return cards that reached "done" on this day or later (YYYY-MM-DD) and are still there.',
            format="date",
        ),
        lambda kanban, card, text: (day := finish_day(kanban, card)) is not None and day >= parse_day("date", text),
    ),
    "finished_to": CardFilter(
        string(
            'Only return cards that reached "done" on this day or earlier (YYYY-MM-DD) and are still there.',
            format="date",
        ),
        lambda kanban, card, text: (day := finish_day(kanban, card)) is not None and day <= parse_day("date", text),
    ),
    "custom_fields": CardFilter(
        array(
            FIELD_FILTER,
            "Only return cards whose custom fields have all of these values. Cards where one of the fields is empty "
            "are left out.",
            maxItems=10,
        ),
        has_fields,
    ),
}


def is_overdue(kanban: Kanban, card: Card) -> bool:
    unfinished = kanban.columns.get(card.column_id).section != "done"
    return unfinished and card.deadline is not None and card.deadline < kanban.now().date()


def filtered(kanban: Kanban, cards: list[Card], args: Arguments) -> list[Card]:
    """The cards that pass every given filter."""
    given = [(CARD_FILTERS[name], value) for name, value in args.items() if name in CARD_FILTERS]
    return [card for card in cards if all(f.admits(kanban, card, value) for f, value in given)]


def check_scope(kanban: Kanban, args: Arguments) -> None:
    """An unknown board, workspace or user is an error, not an empty list."""
    if "board_id" in args:
        kanban.boards.get(args["board_id"])
    if "workspace_id" in args:
        kanban.workspaces.get(args["workspace_id"])
    if "user_id" in args:
        kanban.users.get(args["user_id"])


def cards_in_scope(kanban: Kanban, args: Arguments, *, archived: bool = False) -> list[Card]:
    """The cards of the board, workspace and user the arguments name; a board makes its workspace redundant."""
    check_scope(kanban, args)
    scope = {name: args[name] for name in ("board_id", "workspace_id", "user_id") if name in args}
    if "board_id" in scope:
        scope.pop("workspace_id", None)
    return filtered(kanban, [card for card in kanban.cards if archived or not card.is_archived], scope)
