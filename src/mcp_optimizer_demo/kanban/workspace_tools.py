"""Tools on workspaces: the groups that boards belong to."""

from dataclasses import replace
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, array, boolean, integer, one_of, record, string
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import INCLUDE_ARCHIVED, PAGED, PAGING, WORKSPACE_ID, identifier
from mcp_optimizer_demo.kanban.records import NEW, Workspace
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import board_view, paged, user_view, workspace_view
from mcp_optimizer_demo.toolserver import ADDS, DESTROYS, SETS, Arguments, ToolFault

KINDS = ("team", "management")

NAME = string(
    "Display name of the workspace. Must not be used by another active workspace.", minLength=1, maxLength=100
)
DESCRIPTION = string("What the workspace is for, in one or two sentences.", maxLength=1000)
KIND = one_of(
    KINDS,
    'The kind of workspace: "team" for boards of delivery teams, "management" for portfolio boards that '
    "span several teams.",
)
WORKSPACE: Schema = record(
    {
        "workspace_id": integer("Unique ID of the workspace."),
        "name": string("Display name of the workspace."),
        "description": string("What the workspace is for."),
        "kind": one_of(KINDS, "The kind of workspace."),
        "is_archived": boolean("Whether the workspace is archived."),
        "board_count": integer("Number of active boards in the workspace."),
    },
    required=("workspace_id", "name", "kind", "is_archived", "board_count"),
)


@kanban_tool(
    "List Workspaces",
    "Get a list of the workspaces of this instance, with the number of active boards in each. Workspaces are the "
    "top level of the hierarchy workspace > board > card. Use this first when you do not know any IDs yet, then "
    "call list_boards with a workspace_id.",
    {
        "user_id": identifier("Only return workspaces this user is a member of. See list_users for IDs."),
        "kind": KIND,
        "include_archived": INCLUDE_ARCHIVED,
        **PAGING,
    },
    output={**PAGED, "workspaces": array(WORKSPACE, "The workspaces, ordered by ID.")},
)
def list_workspaces(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    allowed = None if "user_id" not in args else kanban.users.get(args["user_id"]).workspace_ids
    rows = [
        workspace
        for workspace in kanban.workspaces
        if (allowed is None or workspace.id in allowed)
        and args.get("kind", workspace.kind) == workspace.kind
        and (args.get("include_archived", False) or not workspace.is_archived)
    ]
    return paged(rows, args, "workspaces", lambda row: workspace_view(kanban, row))


@kanban_tool(
    "Get Workspace",
    "Get one workspace with its boards and members. Returns an error when the ID does not exist; call "
    "list_workspaces to find valid IDs.",
    {"workspace_id": WORKSPACE_ID},
    required=("workspace_id",),
)
def get_workspace(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    workspace = kanban.workspaces.get(args["workspace_id"])
    return {
        **workspace_view(kanban, workspace),
        "boards": [board_view(kanban, b) for b in kanban.boards if b.workspace_id == workspace.id],
        "members": [user_view(u) for u in kanban.users if workspace.id in u.workspace_ids],
    }


@kanban_tool(
    "Create Workspace",
    "Create a new, empty workspace. The name must be unique among the active workspaces. Boards are added to it "
    "afterwards with create_board.",
    {"name": NAME, "description": DESCRIPTION, "kind": {**KIND, "default": "team"}},
    required=("name",),
    hints=ADDS,
    output={"workspace": WORKSPACE},
)
def create_workspace(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    check_name_is_free(kanban, args["name"], None)
    description, kind = args.get("description", ""), args.get("kind", "team")
    workspace = kanban.workspaces.add(Workspace(NEW, args["name"], description, kind))
    return {"workspace": workspace_view(kanban, workspace)}


@kanban_tool(
    "Update Workspace",
    "Change the name, description or kind of a workspace. Only the fields you pass are changed; the boards in the "
    "workspace are not affected.",
    {"workspace_id": WORKSPACE_ID, "name": NAME, "description": DESCRIPTION, "kind": KIND},
    required=("workspace_id",),
    hints=SETS,
    output={"workspace": WORKSPACE},
)
def update_workspace(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    workspace = kanban.workspaces.get(args["workspace_id"])
    if "name" in args:
        check_name_is_free(kanban, args["name"], workspace.id)
    changes = {name: args[name] for name in ("name", "description", "kind") if name in args}
    return {"workspace": workspace_view(kanban, kanban.workspaces.put(replace(workspace, **changes)))}


@kanban_tool(
    "Archive Workspace",
    "Archive a workspace, or restore an archived one. A workspace can only be archived when none of its boards is "
    "active: archive the boards with archive_board first. Nothing is deleted.",
    {
        "workspace_id": WORKSPACE_ID,
        "restore": boolean("Set to true to bring an archived workspace back instead.", default=False),
    },
    required=("workspace_id",),
    hints=DESTROYS,
)
def archive_workspace(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    workspace = kanban.workspaces.get(args["workspace_id"])
    restore = args.get("restore", False)
    active = [b.id for b in kanban.boards if b.workspace_id == workspace.id and not b.is_archived]
    if active and not restore:
        raise ToolFault(
            f"Workspace {workspace.id} still has active boards: {active}. Archive them with archive_board first."
        )
    kanban.workspaces.put(replace(workspace, is_archived=not restore))
    return {"workspace_id": workspace.id, "is_archived": not restore}


def check_name_is_free(kanban: Kanban, name: str, own_id: int | None) -> None:
    for workspace in kanban.workspaces:
        taken = workspace.name.casefold() == name.casefold() and not workspace.is_archived
        if taken and workspace.id != own_id:
            raise ToolFault(f"Workspace {workspace.id} is already named '{workspace.name}'. Choose another name.")


TOOLS = (list_workspaces, get_workspace, create_workspace, update_workspace, archive_workspace)
