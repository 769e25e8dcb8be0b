"""The tools that find and read cards: list_cards, search_cards, get_card and get_card_history."""

from collections.abc import Callable
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, integer, number, one_of, record, string
from mcp_optimizer_demo.kanban.card_filters import CARD_FILTERS, cards_in_scope, check_scope, filtered
from mcp_optimizer_demo.kanban.card_outputs import CARD_SUMMARY_OPEN, card_row_with
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import (
    CARD_ID,
    IN_BOARD,
    IN_WORKSPACE,
    INCLUDE_ARCHIVED,
    PAGED,
    PAGING,
    PERIOD,
    TIMESTAMP,
    identifier,
)
from mcp_optimizer_demo.kanban.records import PRIORITIES, Card, HistoryLine
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.text_match import match_score
from mcp_optimizer_demo.kanban.views import NESTED_VIEWS, card_row, card_view, paged, parse_day, plain, renamed
from mcp_optimizer_demo.toolserver import Arguments, ToolFault

SORT_KEYS: dict[str, Callable[[Kanban, Card], Any]] = {
    "board_order": lambda kanban, card: (
        card.board_id,
        kanban.columns.get(card.column_id).position,
        kanban.lanes.get(card.lane_id).position,
        card.position,
    ),
    "created_at": lambda _, card: card.created_at,
    "updated_at": lambda _, card: card.updated_at,
    "deadline": lambda _, card: (card.deadline is None, card.deadline or card.created_at.date()),
    "priority": lambda _, card: PRIORITIES.index(card.priority),
    "size": lambda _, card: (card.size is None, card.size or 0),
    "title": lambda _, card: card.title.casefold(),
}

EVENT: Schema = record(
    {
        "event_id": integer("Unique ID of the event."),
        "card_id": integer("ID of the card it happened to."),
        "at": TIMESTAMP,
        "user_id": integer("ID of the user who did it."),
        "user_name": string("Name of that user."),
        "action": string('What was done, e.g. "moved".'),
        "detail": string("The particulars, e.g. from which column to which."),
    },
    required=("event_id", "card_id", "at", "user_id", "action", "detail"),
)


@kanban_tool(
    "List Cards",
    "Get cards that meet all of the given conditions, one page at a time. Without any filter every card that is not "
    "archived is returned, so narrow the result with board_id, sections, owner_user_ids or other filters whenever "
    "you can. Filters are combined with AND; the values inside one list filter are combined with OR. Each card comes "
    "as a summary of its most used fields; use expand to get all fields and the subtasks, comments, custom fields, "
    "links, blockers or flow of every card in the same call, or get_card to read a single card completely. To find "
    'cards by words in their text use search_cards instead. Examples: overdue work of a board is {"board_id": 1, '
    '"is_overdue": true}; what a user is working on is {"user_id": 3, "sections": ["progress"]}; the ten '
    'cards changed last are {"sort_by": "updated_at", "sort_order": "desc", "per_page": 10}.',
    {
        **{name: card_filter.schema for name, card_filter in CARD_FILTERS.items()},
        "state": one_of(
            ("active", "archived", "all"),
            'Which cards to consider: "active" cards on the boards, "archived" ones, or both.',
            default="active",
        ),
        "expand": array(
            one_of(NESTED_VIEWS, "A part of the card."),
            "Return all fields of each card together with these parts. Expanding comments or flow for many cards makes "
            "the answer long.",
            maxItems=len(NESTED_VIEWS),
        ),
        "sort_by": one_of(
            tuple(SORT_KEYS),
            'What to order the cards by. "board_order" is the order in which they stand on the board: column, '
            "lane, position. Cards without a deadline or size come last in ascending order.",
            default="board_order",
        ),
        "sort_order": one_of(("asc", "desc"), "Ascending or descending order.", default="asc"),
        **PAGING,
    },
    output={**PAGED, "cards": array(CARD_SUMMARY_OPEN, "The cards of this page; more fields when expand is used.")},
)
def list_cards(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    check_scope(kanban, args)
    state = args.get("state", "active")
    cards = [card for card in kanban.cards if state == "all" or card.is_archived == (state == "archived")]
    # The board decides; its workspace need not be given correctly as well.
    scope = {name: value for name, value in args.items() if name != "workspace_id" or "board_id" not in args}
    found = filtered(kanban, cards, scope)
    key = SORT_KEYS[args.get("sort_by", "board_order")]
    found.sort(key=lambda card: key(kanban, card), reverse=args.get("sort_order") == "desc")
    expand = args.get("expand", ())
    return paged(found, args, "cards", lambda c: card_view(kanban, c, expand) if expand else card_row(kanban, c))


@kanban_tool(
    "Search Cards",
    "Find cards by words in their title, description, custom ID, tags or comments, best match first. Words may be "
    "incomplete or slightly misspelt. Each hit says where the words were found. Use list_cards when you want to "
    "filter by exact conditions instead.",
    {
        "query": string('The words to look for, e.g. "invoice rounding".', minLength=1, maxLength=200),
        "board_id": IN_BOARD,
        "workspace_id": IN_WORKSPACE,
        "user_id": identifier("Only find cards this user owns or co-owns."),
        "search_in": array(
            one_of(("title", "description", "custom_id", "tags", "comments"), "A place to search in."),
            "Where to search. Omit to search everywhere.",
            maxItems=5,
        ),
        "include_archived": INCLUDE_ARCHIVED,
        "min_score": number(
            "Leave out cards that match less well than this, from 0 to 1.", minimum=0, maximum=1, default=0.6
        ),
        **PAGING,
    },
    required=("query",),
    output={
        **PAGED,
        "cards": array(
            card_row_with(
                {
                    "score": number("How well the card matches, from 0 to 1."),
                    "found_in": array({"type": "string"}, "Where the words were found."),
                }
            ),
            "The cards found, best match first.",
        ),
    },
)
def search_cards(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    hits = []
    for card in cards_in_scope(kanban, args, archived=args.get("include_archived", False)):
        scores = {
            place: match_score(args["query"], text)
            for place, text in searched_texts(kanban, card).items()
            if place in args.get("search_in", (place,))
        }
        best = max(scores.values(), default=0.0)
        if best >= args.get("min_score", 0.6) and best > 0:
            hits.append((best, card, [place for place, score in scores.items() if score == best]))
    hits.sort(key=lambda hit: (-hit[0], hit[1].id))
    return paged(
        hits,
        args,
        "cards",
        lambda hit: {**card_row(kanban, hit[1]), "score": round(hit[0], 2), "found_in": hit[2]},
    )


def searched_texts(kanban: Kanban, card: Card) -> dict[str, str]:
    return {
        "title": card.title,
        "description": card.description,
        "custom_id": card.custom_id or "",
        "tags": " ".join(kanban.tags.get(tag_id).name for tag_id in card.tag_ids),
        "comments": " ".join(comment.text for comment in kanban.comments if comment.card_id == card.id),
    }


@kanban_tool(
    "Get Card",
    "Get one card with all its fields and, unless you limit them with include, its subtasks, comments, custom field "
    "values, links, blockers and its flow: every column it has been in, since when and for how many days. Give "
    "either card_id or custom_id.",
    {
        "card_id": CARD_ID,
        "custom_id": string("Your own identifier of the card, when you do not know its ID.", minLength=1),
        "include": array(
            one_of(NESTED_VIEWS, "A part of the card."),
            "Which parts to return beside the fields of the card. Omit for all, pass an empty list for none.",
            maxItems=len(NESTED_VIEWS),
        ),
    },
)
def get_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    if "card_id" in args:
        card = kanban.cards.get(args["card_id"])
    elif "custom_id" in args:
        named = [card for card in kanban.cards if card.custom_id == args["custom_id"]]
        if not named:
            raise ToolFault(f"No card has the custom_id '{args['custom_id']}'. Try search_cards.")
        card = named[0]
    else:
        raise ToolFault("get_card needs a card_id or a custom_id.")
    return card_view(kanban, card, args.get("include", NESTED_VIEWS))


@kanban_tool(
    "Get Card History",
    "Get what happened to a card, newest first: creation, moves, changed fields, comments, subtasks, links and "
    "blockers, each with the time and the user. Give a board_id instead of a card_id to see the recent activity of a "
    "whole board.",
    {
        "card_id": identifier("The ID of the card whose history you want. Takes precedence over board_id."),
        "board_id": identifier("The ID of the board whose activity you want."),
        "user_id": identifier("Only return what this user did."),
        "actions": array(
            {"type": "string", "minLength": 1},
            'Only return these actions, e.g. ["moved", "blocked"].',
            maxItems=20,
        ),
        **PERIOD,
        **PAGING,
    },
    output={**PAGED, "events": array(EVENT, "What happened, newest first.")},
)
def get_card_history(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    if "card_id" in args:
        cards = {kanban.cards.get(args["card_id"]).id}
    elif "board_id" in args:
        board = kanban.boards.get(args["board_id"])
        cards = {card.id for card in kanban.cards if card.board_id == board.id}
    else:
        raise ToolFault("get_card_history needs a card_id or a board_id.")
    events = [event for event in kanban.events if event.card_id in cards and concerns(event, args)]
    events.sort(key=lambda event: (event.at, event.id), reverse=True)
    return paged(events, args, "events", lambda event: event_view(kanban, event))


def concerns(event: HistoryLine, args: Arguments) -> bool:
    day = event.at.date()
    return (
        args.get("user_id", event.user_id) == event.user_id
        and event.action in (args.get("actions") or (event.action,))
        and ("date_from" not in args or day >= parse_day("date_from", args["date_from"]))
        and ("date_to" not in args or day <= parse_day("date_to", args["date_to"]))
    )


def event_view(kanban: Kanban, event: HistoryLine) -> dict[str, Any]:
    view = renamed(event, "event_id")
    return {**view, "at": plain(event.at), "user_name": kanban.users.get(event.user_id).name}


TOOLS = (list_cards, search_cards, get_card, get_card_history)
