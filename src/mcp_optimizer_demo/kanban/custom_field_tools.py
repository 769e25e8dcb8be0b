"""Tools on custom fields and on their values on cards."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, integer, nullable, one_of, record, string
from mcp_optimizer_demo.kanban.card_fields import FIELD_SETTING
from mcp_optimizer_demo.kanban.card_parts import set_field_value
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import CARD_ID, FIELD_ID, identifier
from mcp_optimizer_demo.kanban.records import FIELD_KINDS, NEW, CustomField
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import card_fields_view, field_view
from mcp_optimizer_demo.toolserver import ADDS, SETS, Arguments, ToolFault

FIELD: Schema = record(
    {
        "field_id": integer("Unique ID of the custom field."),
        "name": string("Name of the field."),
        "kind": one_of(FIELD_KINDS, "What the field holds."),
        "description": string("What to enter."),
        "options": array({"type": "string"}, "The options of a dropdown; empty for other kinds."),
        "workspace_id": nullable(integer("Workspace the field is restricted to, or null.")),
        "board_id": nullable(integer("Board the field is restricted to, or null.")),
    },
    required=("field_id", "name", "kind", "options"),
)


@kanban_tool(
    "List Custom Fields",
    "Get the custom fields cards can have: their kind, the options of dropdowns and where they are available. With "
    "card_id the fields available on the board of that card are returned together with the values they have on it.",
    {
        "board_id": identifier("Only return fields available on this board."),
        "workspace_id": identifier("Only return fields available in this workspace."),
        "card_id": identifier("Return the fields of this card's board, and their values on the card."),
    },
)
def list_custom_fields(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"]) if "card_id" in args else None
    board_id = card.board_id if card else args.get("board_id")
    board = kanban.boards.get(board_id) if board_id is not None else None
    workspace_id = board.workspace_id if board else args.get("workspace_id")
    if workspace_id is not None:
        kanban.workspaces.get(workspace_id)
    fields = [
        field_view(field)
        for field in kanban.custom_fields
        if (workspace_id is None or field.workspace_id in (None, workspace_id))
        and (board is None or field.board_id in (None, board.id))
    ]
    return {"fields": fields} | ({"values": card_fields_view(kanban, card.id)} if card else {})


@kanban_tool(
    "Create Custom Field",
    "Define a custom field. It is available on every board unless it is restricted to one workspace or one board. The "
    "kind cannot be changed later.",
    {
        "name": string('Name of the field as shown on cards, e.g. "Customer".', minLength=1, maxLength=60),
        "kind": one_of(
            FIELD_KINDS, "What the field holds: a line of text, a number, a day, one of several options, or yes/no."
        ),
        "options": array(
            {"type": "string", "minLength": 1, "maxLength": 60},
            'The options to choose from, in order. Required for the kind "dropdown", not allowed for others.',
            minItems=1,
            maxItems=50,
        ),
        "description": string("What to enter, shown as help beside the field.", maxLength=500),
        "workspace_id": identifier("Restrict the field to the boards of this workspace."),
        "board_id": identifier("Restrict the field to this board. Excludes workspace_id."),
    },
    required=("name", "kind"),
    hints=ADDS,
    output={"field": FIELD},
)
def create_custom_field(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    if (args["kind"] == "dropdown") != ("options" in args):
        raise ToolFault("options are required for a dropdown field and not allowed for any other kind.")
    if "workspace_id" in args and "board_id" in args:
        raise ToolFault("Restrict a custom field to a workspace or to a board, not to both.")
    if "workspace_id" in args:
        kanban.workspaces.get(args["workspace_id"])
    if "board_id" in args:
        kanban.boards.get(args["board_id"])
    new = CustomField(
        id=NEW,
        name=args["name"],
        kind=args["kind"],
        description=args.get("description", ""),
        options=tuple(args.get("options", ())),
        workspace_id=args.get("workspace_id"),
        board_id=args.get("board_id"),
    )
    return {"field": field_view(kanban.custom_fields.add(new))}


@kanban_tool(
    "Set Card Custom Field",
    "Set the value of one custom field on a card, or clear it with null. Use update_card to set several at once.",
    {"card_id": CARD_ID, "field_id": FIELD_ID, "value": FIELD_SETTING["properties"]["value"]},
    required=("card_id", "field_id", "value"),
    hints=SETS,
)
def set_card_custom_field(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    card = kanban.cards.get(args["card_id"])
    set_field_value(kanban, card, args["field_id"], args["value"])
    kanban.cards.put(replace(card, updated_at=kanban.now()))
    return {"card_id": card.id, "values": card_fields_view(kanban, card.id)}


TOOLS = (list_custom_fields, create_custom_field, set_card_custom_field)
