"""Tools on users and on how much work they have."""

from collections import Counter
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, boolean, integer, number, one_of, record, string
from mcp_optimizer_demo.kanban.card_filters import cards_in_scope, check_scope, is_overdue
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import IN_BOARD, IN_WORKSPACE, PAGED, PAGING, USER_ID, identifier
from mcp_optimizer_demo.kanban.records import ROLES
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import card_row, paged, user_view
from mcp_optimizer_demo.toolserver import Arguments

USER: Schema = record(
    {
        "user_id": integer("Unique ID of the user."),
        "username": string("Login name."),
        "name": string("Full name."),
        "email": string("Email address.", format="email"),
        "role": one_of(ROLES, "Role in the instance."),
        "workspace_ids": array({"type": "integer"}, "Workspaces the user is a member of."),
        "is_enabled": boolean("Whether the user can log in and be assigned."),
    },
    required=("user_id", "username", "name", "role", "is_enabled"),
)


@kanban_tool(
    "List Users",
    "Get the users of this instance, optionally only the members of a workspace or of the workspace a board belongs "
    "to. Use it to find the user_id for assigning cards, or to look somebody up by name or email address.",
    {
        "workspace_id": identifier("Only return members of this workspace."),
        "board_id": identifier("Only return users who can be assigned on this board."),
        "name_contains": string("Only return users whose name, login or email contains this text.", minLength=1),
        "role": one_of(ROLES, "Only return users of this role."),
        "include_disabled": boolean("Set to true to include disabled users.", default=False),
        **PAGING,
    },
    output={**PAGED, "users": array(USER, "The users, ordered by ID.")},
)
def list_users(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    check_scope(kanban, args)
    spaces = {args["workspace_id"]} if "workspace_id" in args else set()
    if "board_id" in args:
        spaces.add(kanban.boards.get(args["board_id"]).workspace_id)
    text = args.get("name_contains", "").casefold()
    rows = [
        user
        for user in kanban.users
        if spaces <= set(user.workspace_ids)
        and text in f"{user.name} {user.username} {user.email}".casefold()
        and args.get("role", user.role) == user.role
        and (user.is_enabled or args.get("include_disabled", False))
    ]
    return paged(rows, args, "users", user_view)


@kanban_tool(
    "Get User",
    "Get one user with the cards they own now. Without user_id the user that owns the API key is returned, which "
    'answers the question "who am I?".',
    {
        "user_id": identifier("The ID of the user, as returned by list_users. Defaults to the API user."),
        "include_cards": boolean("Set to false to leave out the owned cards.", default=True),
    },
)
def get_user(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    user = kanban.users.get(args.get("user_id", kanban.acting_user_id))
    view = {**user_view(user), "is_api_user": user.id == kanban.acting_user_id}
    if args.get("include_cards", True):
        owned = [c for c in kanban.cards if c.owner_user_id == user.id and not c.is_archived]
        view["owned_cards"] = [card_row(kanban, card) for card in owned]
    return view


@kanban_tool(
    "Get User Workload",
    "Get how much unfinished work a user has: the number of cards and the sum of their sizes per section, how many are "
    "blocked or overdue, and the open subtasks. Cards count whether the user owns or co-owns them.",
    {"user_id": USER_ID, "board_id": IN_BOARD, "workspace_id": IN_WORKSPACE},
    required=("user_id",),
    output={
        "user_id": integer("ID of the user."),
        "card_count": integer("Number of unfinished cards."),
        "total_size": number("Sum of the sizes of these cards; cards without a size count as 0."),
        "cards_by_section": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "Number of unfinished cards per section.",
        },
        "blocked_count": integer("How many of the cards are blocked."),
        "overdue_count": integer("How many of the cards are past their deadline."),
        "open_subtask_count": integer("Number of unfinished subtasks the user owns."),
    },
)
def get_user_workload(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    user = kanban.users.get(args["user_id"])
    section = {column.id: column.section for column in kanban.columns}
    cards = [card for card in cards_in_scope(kanban, args) if section[card.column_id] != "done"]
    everyones = {name: value for name, value in args.items() if name != "user_id"}
    board_cards = {card.id for card in cards_in_scope(kanban, everyones)}
    open_subtasks = [
        s for s in kanban.subtasks if s.owner_user_id == user.id and not s.finished_at and s.card_id in board_cards
    ]
    return {
        "user_id": user.id,
        "card_count": len(cards),
        "total_size": sum(card.size or 0 for card in cards),
        "cards_by_section": dict(Counter(section[card.column_id] for card in cards)),
        "blocked_count": sum(kanban.open_blocker(card.id) is not None for card in cards),
        "overdue_count": sum(is_overdue(kanban, card) for card in cards),
        "open_subtask_count": len(open_subtasks),
    }


TOOLS = (list_users, get_user, get_user_workload)
