"""Tools on links between cards, and on the tree of parents and children."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, integer, nullable, one_of, record, string
from mcp_optimizer_demo.kanban.card_fields import LINK
from mcp_optimizer_demo.kanban.card_outputs import card_row_with
from mcp_optimizer_demo.kanban.card_parts import add_link, check_parent, remove_link
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import CARD_ID, identifier
from mcp_optimizer_demo.kanban.records import LINK_KINDS
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import card_links_view, card_row
from mcp_optimizer_demo.toolserver import ADDS, DESTROYS, SETS, Arguments

LINK_ROW: Schema = record(
    {
        "link_id": integer("Unique ID of the link."),
        "type": one_of(LINK_KINDS, "How this card relates to the other."),
        "linked_card_id": integer("ID of the other card."),
        "linked_title": string("Title of the other card."),
        "linked_column_name": string("Column the other card is in."),
        "note": string("Why the cards are linked."),
    },
    required=("link_id", "type", "linked_card_id", "linked_title"),
)


@kanban_tool(
    "List Card Links",
    "Get the cards a card is linked to, with the kind of link seen from this card, and its parent. A link that was "
    'made on the other card is shown the other way round: its "blocks" appears here as "is_blocked_by".',
    {
        "card_id": CARD_ID,
        "types": array(one_of(LINK_KINDS, "A kind of link."), "Only return these kinds of links.", maxItems=5),
        "board_id": identifier("Only return links to cards on this board."),
    },
    required=("card_id",),
    output={
        "card_id": integer("ID of the card."),
        "parent_card_id": nullable(integer("ID of its parent card, or null.")),
        "links": array(LINK_ROW, "The links of the card, oldest first."),
    },
)
def list_card_links(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    links = [
        link
        for link in card_links_view(kanban, card.id)
        if link["type"] in (args.get("types") or LINK_KINDS)
        and args.get("board_id") in (None, kanban.cards.get(link["linked_card_id"]).board_id)
    ]
    return {"card_id": card.id, "parent_card_id": card.parent_card_id, "links": links}


@kanban_tool(
    "Add Card Link",
    "Link two cards, which may be on different boards. Two cards can be linked only once; remove the old link first to "
    "change its kind. For a hierarchy use set_card_parent instead.",
    {"card_id": CARD_ID, **LINK["properties"]},
    required=("card_id", "linked_card_id", "type"),
    hints=ADDS,
)
def add_card_link(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    link = add_link(kanban, card.id, args["type"], args["linked_card_id"], args.get("note", ""))
    return {"link_id": link.id, "card_id": card.id, "links": card_links_view(kanban, card.id)}


@kanban_tool(
    "Remove Card Link",
    "Remove a link between two cards. Either of the two cards may be given as card_id. The cards themselves are kept.",
    {
        "card_id": CARD_ID,
        "link_id": identifier("The ID of the link, as returned by list_card_links."),
    },
    required=("card_id", "link_id"),
    hints=DESTROYS,
)
def remove_card_link(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    remove_link(kanban, card.id, args["link_id"])
    return {"removed_link_id": args["link_id"], "links": card_links_view(kanban, card.id)}


@kanban_tool(
    "Set Card Parent",
    "Make one card the child of another, for example a feature of an initiative, or detach it with parent_card_id "
    "null. An existing parent is replaced. A card cannot become a descendant of itself.",
    {
        "card_id": identifier("The ID of the card that becomes the child."),
        "parent_card_id": nullable(identifier("The ID of the card that becomes the parent, or null to detach.")),
    },
    required=("card_id", "parent_card_id"),
    hints=SETS,
)
def set_card_parent(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card, parent_id = kanban.cards.get(args["card_id"]), args["parent_card_id"]
    if parent_id is not None:
        check_parent(kanban, card.id, parent_id)
    kanban.cards.put(replace(card, parent_card_id=parent_id, updated_at=kanban.now()))
    kanban.record(card.id, "parent_set", "no parent" if parent_id is None else f"card {parent_id}")
    return {"card_id": card.id, "previous_parent_card_id": card.parent_card_id, "parent_card_id": parent_id}


@kanban_tool(
    "List Child Cards",
    "Get the children of a card and, with a depth of more than 1, their children in turn, together with how many of "
    "them are finished. Use it to see the progress of an initiative.",
    {
        "card_id": CARD_ID,
        "depth": integer("How many levels to descend.", minimum=1, maximum=5, default=1),
        "board_id": identifier("Only return children on this board. Deeper levels are reached through all boards."),
    },
    required=("card_id",),
    output={
        "card_id": integer("ID of the card."),
        "total": integer("Number of cards found below it."),
        "finished": integer('How many of them are in a column of the section "done".'),
        "children": array(
            card_row_with(
                {
                    "parent_card_id": integer("ID of the direct parent."),
                    "depth": integer("How many levels below the card it is."),
                }
            ),
            "The cards found, level by level.",
        ),
    },
)
def list_child_cards(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    children: list[dict[str, Any]] = []
    level = {card.id}
    for depth in range(1, args.get("depth", 1) + 1):
        found = [c for c in kanban.cards if c.parent_card_id in level and not c.is_archived]
        children += [
            {**card_row(kanban, c), "parent_card_id": c.parent_card_id, "depth": depth}
            for c in found
            if args.get("board_id", c.board_id) == c.board_id
        ]
        level = {c.id for c in found}
    finished = sum(child["section"] == "done" for child in children)
    return {"card_id": card.id, "total": len(children), "finished": finished, "children": children}


TOOLS = (list_card_links, add_card_link, remove_card_link, set_card_parent, list_child_cards)
