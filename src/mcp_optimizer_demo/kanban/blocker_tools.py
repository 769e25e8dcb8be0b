"""Tools on blockers: what keeps a card from being worked on, and for how long."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, boolean, integer, nullable, number, record, string
from mcp_optimizer_demo.kanban.card_filters import cards_in_scope
from mcp_optimizer_demo.kanban.card_parts import block
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import (
    ACTING_USER_ID,
    CARD_ID,
    FOR_USER,
    IN_BOARD,
    IN_WORKSPACE,
    PAGING,
    TIMESTAMP,
    identifier,
)
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import blocker_view, card_row, paged
from mcp_optimizer_demo.toolserver import ADDS, SETS, Arguments, ToolFault

BLOCKER_FIELDS: dict[str, Schema] = {
    "blocker_id": integer("Unique ID of the blocker."),
    "card_id": integer("ID of the blocked card."),
    "user_id": integer("ID of the user who blocked it."),
    "reason": string("What the card is waiting for."),
    "blocking_card_id": nullable(integer("Card it is waiting for, or null.")),
    "started_at": TIMESTAMP,
    "ended_at": nullable(string("When it was unblocked, or null.", format="date-time")),
    "resolution": string("How the blocker was resolved."),
    "is_open": boolean("Whether the card is still blocked."),
    "blocked_hours": number("Hours the card has been blocked."),
}


@kanban_tool(
    "Block Card",
    "Mark a card as blocked because it cannot be worked on, and say why. A blocked card keeps its place and counts "
    "against WIP limits; the time until it is unblocked is recorded and can be left out of the cycle time. A card has "
    "at most one open blocker.",
    {
        "card_id": CARD_ID,
        "reason": string(
            'What the card is waiting for, e.g. "Waiting for the bank\'s test account".', minLength=1, maxLength=500
        ),
        "blocking_card_id": identifier("The card whose completion would remove the blocker, if there is one."),
        "user_id": ACTING_USER_ID,
    },
    required=("card_id", "reason"),
    hints=ADDS,
    output={"blocker": record(BLOCKER_FIELDS, required=("blocker_id", "card_id", "reason", "is_open"))},
)
def block_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    blocker = block(kanban, card.id, args["reason"], args.get("blocking_card_id"), args.get("user_id"))
    return {"blocker": blocker_view(kanban, blocker)}


@kanban_tool(
    "Unblock Card",
    "Close the open blocker of a card and record how it was resolved. Returns how long the card was blocked. Returns "
    "an error when the card is not blocked.",
    {
        "card_id": CARD_ID,
        "resolution": string("How the blocker was resolved. Kept with the blocker.", maxLength=500),
        "user_id": ACTING_USER_ID,
    },
    required=("card_id",),
    hints=SETS,
    output={"blocker": record(BLOCKER_FIELDS, required=("blocker_id", "card_id", "reason", "is_open"))},
)
def unblock_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    blocker = kanban.open_blocker(card.id)
    if blocker is None:
        raise ToolFault(f"Card {card.id} is not blocked. Call list_blocked_cards to see the cards that are.")
    user = kanban.users.get(args.get("user_id", kanban.acting_user_id))
    resolution = args.get("resolution", "")
    blocker = kanban.blockers.put(replace(blocker, ended_at=kanban.now(), resolution=resolution))
    kanban.record(card.id, "unblocked", resolution, user.id)
    return {"blocker": blocker_view(kanban, blocker)}


@kanban_tool(
    "List Blocked Cards",
    "Get the cards that are blocked now with the reason and the time they have been waiting, longest first. With "
    "include_resolved past blockers are returned too, for example to find the most frequent causes of delay.",
    {
        "board_id": IN_BOARD,
        "workspace_id": IN_WORKSPACE,
        "user_id": FOR_USER,
        "include_resolved": boolean("Set to true to include blockers that have been resolved.", default=False),
        **PAGING,
    },
)
def list_blocked_cards(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    cards = {card.id: card for card in cards_in_scope(kanban, args)}
    resolved = args.get("include_resolved", False)
    rows = [b for b in kanban.blockers if b.card_id in cards and (resolved or b.ended_at is None)]
    rows.sort(key=lambda b: ((b.ended_at or kanban.now()) - b.started_at, -b.id), reverse=True)
    return paged(
        rows, args, "blocked", lambda b: {**blocker_view(kanban, b), "card": card_row(kanban, cards[b.card_id])}
    )


TOOLS = (block_card, unblock_card, list_blocked_cards)
