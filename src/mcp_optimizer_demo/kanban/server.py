"""The kanban server: all its tools, on two seeded instances. Started by `python -m mcp_optimizer_demo.kanban`."""

from typing import Any

from mcp.server.lowlevel import Server

from mcp_optimizer_demo.kanban import (
    analytics_tools,
    blocker_tools,
    board_tools,
    card_finding_tools,
    card_tools,
    card_writing_tools,
    column_tools,
    comment_tools,
    custom_field_tools,
    lane_tools,
    link_tools,
    subtask_tools,
    system_tools,
    tag_tools,
    user_tools,
    workflow_tools,
    workspace_tools,
)
from mcp_optimizer_demo.kanban.declaration import KanbanTool
from mcp_optimizer_demo.kanban.seed import seeded_installation
from mcp_optimizer_demo.kanban.state import Installation
from mcp_optimizer_demo.toolserver import build_server

KANBAN_TOOLS: tuple[KanbanTool, ...] = (
    *system_tools.TOOLS,
    *workspace_tools.TOOLS,
    *board_tools.TOOLS,
    *column_tools.TOOLS,
    *lane_tools.TOOLS,
    *workflow_tools.TOOLS,
    *card_finding_tools.TOOLS,
    *card_writing_tools.TOOLS,
    *card_tools.TOOLS,
    *subtask_tools.TOOLS,
    *comment_tools.TOOLS,
    *tag_tools.TOOLS,
    *custom_field_tools.TOOLS,
    *link_tools.TOOLS,
    *blocker_tools.TOOLS,
    *user_tools.TOOLS,
    *analytics_tools.TOOLS,
)

INSTRUCTIONS = (
    "A kanban system. Start with list_boards or search_board, then get_board_structure for the IDs of columns and "
    "lanes. Cards are found with list_cards and search_cards and moved with move_card."
)


def kanban_server(installation: Installation | None = None) -> Server[dict[str, Any]]:
    """The server on the given instances, or on freshly seeded ones."""
    state = seeded_installation() if installation is None else installation
    return build_server("kanban", "Kanban", INSTRUCTIONS, KANBAN_TOOLS, state)
