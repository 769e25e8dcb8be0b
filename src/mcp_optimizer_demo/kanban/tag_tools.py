"""Tools on tags and on putting them on cards."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, integer, nullable, record, string
from mcp_optimizer_demo.kanban.card_changes import check_tag
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import CARD_ID, COLOR, PAGED, PAGING, TAG_ID, identifier
from mcp_optimizer_demo.kanban.records import NEW, Tag
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import paged, tag_view
from mcp_optimizer_demo.toolserver import ADDS, SETS, Arguments, ToolFault

TAG: Schema = record(
    {
        "tag_id": integer("Unique ID of the tag."),
        "name": string("Name of the tag."),
        "color": string("Color of the tag."),
        "workspace_id": nullable(integer("Workspace the tag is restricted to, or null.")),
        "board_id": nullable(integer("Board the tag is restricted to, or null.")),
        "card_count": integer("Number of cards that carry the tag."),
    },
    required=("tag_id", "name", "card_count"),
)


@kanban_tool(
    "List Tags",
    "Get the tags that can be put on cards, with the number of cards that carry each one. With board_id only the tags "
    "that can be used on that board are returned: global ones, those of its workspace and its own.",
    {
        "board_id": identifier("Only return tags that can be used on this board."),
        "workspace_id": identifier("Only return tags that can be used in this workspace."),
        "name_contains": string("Only return tags whose name contains this text; case does not matter.", minLength=1),
        **PAGING,
    },
    output={**PAGED, "tags": array(TAG, "The tags, ordered by ID.")},
)
def list_tags(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    board = kanban.boards.get(args["board_id"]) if "board_id" in args else None
    workspace_id = board.workspace_id if board else args.get("workspace_id")
    if workspace_id is not None:
        kanban.workspaces.get(workspace_id)
    rows = [
        tag
        for tag in kanban.tags
        if (workspace_id is None or tag.workspace_id in (None, workspace_id))
        and (board is None or tag.board_id in (None, board.id))
        and args.get("name_contains", "").casefold() in tag.name.casefold()
    ]
    return paged(rows, args, "tags", lambda row: tag_view(kanban, row))


@kanban_tool(
    "Create Tag",
    "Create a tag. It can be used everywhere unless it is restricted to one workspace or one board. Names are unique; "
    'check list_tags first to avoid near-duplicates such as "bug" and "bugs".',
    {
        "name": string("Name of the tag; letters, digits, spaces and hyphens.", minLength=1, maxLength=40),
        "color": COLOR,
        "workspace_id": identifier("Restrict the tag to the boards of this workspace."),
        "board_id": identifier("Restrict the tag to this board. Excludes workspace_id."),
    },
    required=("name",),
    hints=ADDS,
    output={"tag": TAG},
)
def create_tag(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    for tag in kanban.tags:
        if tag.name.casefold() == args["name"].casefold():
            raise ToolFault(f"Tag {tag.id} is already named '{tag.name}'. Use it or choose another name.")
    if "workspace_id" in args and "board_id" in args:
        raise ToolFault("Restrict a tag to a workspace or to a board, not to both.")
    if "workspace_id" in args:
        kanban.workspaces.get(args["workspace_id"])
    if "board_id" in args:
        kanban.boards.get(args["board_id"])
    scope = (args.get("workspace_id"), args.get("board_id"))
    tag = kanban.tags.add(Tag(NEW, args["name"], args.get("color", "#6B778C"), *scope))
    return {"tag": tag_view(kanban, tag)}


@kanban_tool(
    "Add Tag To Card",
    "Put a tag on a card. Nothing happens when the card carries it already. A tag restricted to another board or "
    "workspace is refused.",
    {"card_id": CARD_ID, "tag_id": TAG_ID},
    required=("card_id", "tag_id"),
    hints=SETS,
)
def add_tag_to_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    check_tag(kanban, args["tag_id"], kanban.boards.get(card.board_id))
    if args["tag_id"] not in card.tag_ids:
        tags = (*card.tag_ids, args["tag_id"])
        card = kanban.cards.put(replace(card, tag_ids=tags, updated_at=kanban.now()))
        kanban.record(card.id, "tag_added", kanban.tags.get(args["tag_id"]).name)
    return {"card_id": card.id, "tag_ids": list(card.tag_ids)}


@kanban_tool(
    "Remove Tag From Card",
    "Take a tag off a card. Returns an error when the card does not carry the tag. The tag itself is kept.",
    {"card_id": CARD_ID, "tag_id": TAG_ID},
    required=("card_id", "tag_id"),
    hints=SETS,
)
def remove_tag_from_card(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card, tag = kanban.cards.get(args["card_id"]), kanban.tags.get(args["tag_id"])
    if tag.id not in card.tag_ids:
        raise ToolFault(f"Card {card.id} does not carry tag {tag.id} '{tag.name}'. Its tags: {list(card.tag_ids)}.")
    tags = tuple(tag_id for tag_id in card.tag_ids if tag_id != tag.id)
    card = kanban.cards.put(replace(card, tag_ids=tags, updated_at=kanban.now()))
    kanban.record(card.id, "tag_removed", tag.name)
    return {"card_id": card.id, "tag_ids": list(card.tag_ids)}


TOOLS = (list_tags, create_tag, add_tag_to_card, remove_tag_from_card)
