"""Tools on the comments of cards."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, integer, one_of, record, string
from mcp_optimizer_demo.kanban.card_parts import add_comment
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import (
    ACTING_USER_ID,
    CARD_ID,
    COMMENT_ID,
    PAGED,
    PAGING,
    TIMESTAMP,
    identifier,
)
from mcp_optimizer_demo.kanban.records import Comment
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import comment_view, paged
from mcp_optimizer_demo.toolserver import ADDS, DESTROYS, SETS, Arguments, ToolFault

TEXT = string("The text of the comment. Markdown is accepted.", minLength=1, maxLength=5000)
COMMENT: Schema = record(
    {
        "comment_id": integer("Unique ID of the comment."),
        "card_id": integer("ID of the card it was written on."),
        "user_id": integer("ID of the author."),
        "user_name": string("Name of the author."),
        "text": string("The text of the comment."),
        "created_at": TIMESTAMP,
        "updated_at": TIMESTAMP,
    },
    required=("comment_id", "card_id", "user_id", "text", "created_at"),
)


@kanban_tool(
    "List Comments",
    "Get the comments of a card, or the recent comments on all cards of a board when board_id is given instead. "
    "Useful to catch up with a discussion before adding to it.",
    {
        "card_id": identifier("The ID of the card whose comments you want. Takes precedence over board_id."),
        "board_id": identifier("The ID of the board whose comments you want."),
        "user_id": identifier("Only return comments written by this user."),
        "sort_order": one_of(("asc", "desc"), "Oldest first (asc) or newest first (desc).", default="asc"),
        **PAGING,
    },
    output={**PAGED, "comments": array(COMMENT, "The comments in the chosen order.")},
)
def list_comments(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    if "card_id" in args:
        cards = {kanban.cards.get(args["card_id"]).id}
    elif "board_id" in args:
        board = kanban.boards.get(args["board_id"])
        cards = {card.id for card in kanban.cards if card.board_id == board.id}
    else:
        raise ToolFault("list_comments needs a card_id or a board_id.")
    rows = [c for c in kanban.comments if c.card_id in cards and args.get("user_id", c.user_id) == c.user_id]
    rows.sort(key=lambda c: (c.created_at, c.id), reverse=args.get("sort_order") == "desc")
    return paged(rows, args, "comments", lambda row: comment_view(kanban, row))


@kanban_tool(
    "Create Comment",
    "Write a comment on a card. It is added at the end of the discussion and recorded in the card history.",
    {"card_id": CARD_ID, "text": TEXT, "user_id": ACTING_USER_ID},
    required=("card_id", "text"),
    hints=ADDS,
    output={"comment": COMMENT},
)
def create_comment(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    return {"comment": comment_view(kanban, add_comment(kanban, card.id, args["text"], args.get("user_id")))}


@kanban_tool(
    "Update Comment",
    "Replace the text of a comment. The author and the time of writing stay; updated_at is set to now. When user_id is "
    "given it must be the author: comments of other people cannot be rewritten.",
    {
        "card_id": CARD_ID,
        "comment_id": COMMENT_ID,
        "text": TEXT,
        "user_id": identifier("The ID of the user who edits; must be the author of the comment."),
    },
    required=("card_id", "comment_id", "text"),
    hints=SETS,
    output={"comment": COMMENT},
)
def update_comment(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    comment = comment_on_card(kanban, args["card_id"], args["comment_id"])
    if args.get("user_id", comment.user_id) != comment.user_id:
        raise ToolFault(f"Comment {comment.id} was written by user {comment.user_id}; only they may edit it.")
    comment = kanban.comments.put(replace(comment, text=args["text"], updated_at=kanban.now()))
    kanban.record(comment.card_id, "comment_updated", comment.text[:80], comment.user_id)
    return {"comment": comment_view(kanban, comment)}


@kanban_tool(
    "Delete Comment",
    "Delete a comment from a card. The deletion is recorded in the card history; the text is not kept. This cannot be "
    "undone.",
    {"card_id": CARD_ID, "comment_id": COMMENT_ID},
    required=("card_id", "comment_id"),
    hints=DESTROYS,
)
def delete_comment(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    comment = comment_on_card(kanban, args["card_id"], args["comment_id"])
    kanban.comments.remove(comment.id)
    kanban.record(comment.card_id, "comment_deleted", f"comment {comment.id}")
    return {"deleted_comment_id": comment.id, "card_id": comment.card_id}


def comment_on_card(kanban: Kanban, card_id: int, comment_id: int) -> Comment:
    card, comment = kanban.cards.get(card_id), kanban.comments.get(comment_id)
    if comment.card_id != card.id:
        raise ToolFault(
            f"Comment {comment_id} is on card {comment.card_id}, not on card {card_id}. Call list_comments."
        )
    return comment


TOOLS = (list_comments, create_comment, update_comment, delete_comment)
