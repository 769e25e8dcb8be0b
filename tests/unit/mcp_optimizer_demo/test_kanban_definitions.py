"""The kanban tool definitions: which tools exist, and which parameters they have."""

import pytest

from mcp_optimizer_demo.kanban.server import KANBAN_TOOLS

MINIMAL = {
    "list_boards",
    "list_cards",
    "list_workspaces",
    "get_card",
    "get_board",
    "get_workspace",
    "create_card",
    "update_card",
    "move_card",
    "search_board",
    "health_check",
    "list_instances",
}
CREATE_CARD_PARAMETERS = {
    "title",
    "column_id",
    "lane_id",
    "position",
    "custom_id",
    "description",
    "deadline",
    "size",
    "priority",
    "color",
    "type_id",
    "owner_user_id",
    "co_owner_ids_to_add",
    "co_owner_ids_to_remove",
    "tag_ids_to_add",
    "tag_ids_to_remove",
    "subtasks",
    "custom_fields",
    "links",
}
BY_NAME = {tool.name: tool for tool in KANBAN_TOOLS}


def test_there_are_65_tools_and_the_twelve_minimal_ones_are_among_them() -> None:
    assert len(KANBAN_TOOLS) == len(BY_NAME) == 65
    assert BY_NAME.keys() >= MINIMAL


def test_create_card_takes_the_known_parameters_and_at_least_fifteen_more() -> None:
    schema = BY_NAME["create_card"].input_schema
    assert schema["required"] == ["title", "column_id"]
    assert schema["properties"].keys() >= CREATE_CARD_PARAMETERS
    assert len(schema["properties"].keys() - CREATE_CARD_PARAMETERS) >= 15
    for nested in ("subtasks", "custom_fields", "links"):
        assert schema["properties"][nested]["items"]["type"] == "object"


@pytest.mark.requirement("SP-4")
@pytest.mark.parametrize(
    ("parameter", "least"), [("instance", 65), ("board_id", 35), ("card_id", 24), ("workspace_id", 20), ("user_id", 15)]
)
def test_common_parameters_are_shared_by_many_tools(parameter: str, least: int) -> None:
    assert sum(parameter in tool.input_schema["properties"] for tool in KANBAN_TOOLS) >= least


def test_only_reading_tools_say_they_are_read_only() -> None:
    reading = ("list_", "get_", "search_", "health_")
    for tool in KANBAN_TOOLS:
        assert tool.hints.read_only == tool.name.startswith(reading), tool.name
        assert not (tool.hints.read_only and tool.hints.destructive)
