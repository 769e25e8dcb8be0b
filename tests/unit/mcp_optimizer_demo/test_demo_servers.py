"""What the three demo servers have in common: their tools, results, errors and start over stdio."""

import json
import subprocess
from typing import Any

import jsonschema_rs
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from mcp_optimizer_demo import demo_server_commands
from mcp_optimizer_demo.kanban.server import KANBAN_TOOLS
from mcp_optimizer_demo.sql.server import SQL_TOOLS
from mcp_optimizer_demo.web.server import WEB_TOOLS
from tests.unit.mcp_optimizer_demo.calling import Caller, text_of
from tests.unit.mcp_optimizer_demo.sample_calls import KANBAN_CALLS, SQL_CALLS, WEB_CALLS

CALLS = {"kanban": KANBAN_CALLS, "sql": SQL_CALLS, "web": WEB_CALLS}
EVERY_CALL = [(server, tool, arguments) for server, calls in CALLS.items() for tool, arguments in calls.items()]


OUTPUTS: dict[str, dict[str, Any] | None] = {
    **{tool.name: tool.output_schema for tool in KANBAN_TOOLS},
    **{tool.name: tool.output_schema for tool in SQL_TOOLS},
    **{tool.name: tool.output_schema for tool in WEB_TOOLS},
}


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Caller:
    """The server that the test names."""
    caller = request.getfixturevalue(request.param)
    assert isinstance(caller, Caller)
    return caller


async def listed(caller: Caller) -> list[types.Tool]:
    async with Client(caller.server) as client:
        return (await client.list_tools()).tools


def test_the_three_servers_offer_85_tools_with_names_of_their_own() -> None:
    assert len(OUTPUTS) == len(KANBAN_TOOLS) + len(SQL_TOOLS) + len(WEB_TOOLS) == 85


def test_the_table_of_calls_covers_every_tool() -> None:
    assert set(KANBAN_CALLS) == {tool.name for tool in KANBAN_TOOLS}
    assert set(SQL_CALLS) == {tool.name for tool in SQL_TOOLS}
    assert set(WEB_CALLS) == {tool.name for tool in WEB_TOOLS}


@pytest.mark.cases_in_check(6)
@pytest.mark.parametrize(
    ("server", "tool", "arguments"), EVERY_CALL, ids=[call[1] for call in EVERY_CALL], indirect=["server"]
)
async def test_every_tool_answers_on_the_seeded_state(server: Caller, tool: str, arguments: dict[str, Any]) -> None:
    result = await server.result(tool, **arguments)
    assert not result.is_error, text_of(result)
    answer = json.loads(text_of(result))
    assert answer
    assert text_of(result) == json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    output_schema = OUTPUTS[tool]
    if output_schema is None:
        assert result.structured_content is None
    else:
        assert result.structured_content == answer
        jsonschema_rs.validate(output_schema, answer)


@pytest.mark.parametrize("server", ["kanban", "sql", "web"], indirect=True)
async def test_every_definition_is_a_valid_draft_07_schema_that_takes_nothing_undeclared(
    server: Caller,
) -> None:
    for tool in await listed(server):
        jsonschema_rs.meta.validate(tool.input_schema)
        assert tool.input_schema["$schema"] == "http://json-schema.org/draft-07/schema#"
        assert tool.input_schema["additionalProperties"] is False
        assert tool.description
        assert tool.title
        for name, schema in tool.input_schema["properties"].items():
            assert schema.get("description"), f"{tool.name}.{name}"
        if tool.output_schema:
            jsonschema_rs.meta.validate(tool.output_schema)
            assert tool.output_schema["type"] == "object"


async def test_wrong_arguments_are_named_and_nothing_is_done(kanban: Caller) -> None:
    message = await kanban.fault("create_card", title=7, priority="urgent", column="Done")
    assert '"column_id" is a required property' in message
    assert 'title: 7 is not of type "string"' in message
    assert "priority" in message
    assert "'column' was unexpected" in message
    assert "deadline" in await kanban.fault("update_card", card_id=119, deadline="2026-02-31")


async def test_an_unknown_tool_is_a_protocol_error(sql: Caller) -> None:
    async with Client(sql.server) as client:
        with pytest.raises(MCPError, match="Unknown tool: dropDatabase"):
            await client.call_tool("dropDatabase", {})


@pytest.mark.process
@pytest.mark.parametrize(("name", "mode"), [("kanban", "auto"), ("sql", "legacy"), ("web", "auto")])
async def test_each_server_runs_as_a_process_over_stdio(name: str, mode: str) -> None:
    command, *args = demo_server_commands()[name]
    tool, arguments = next(iter(CALLS[name].items()))
    async with Client(stdio_client(StdioServerParameters(command=command, args=args)), mode=mode) as client:
        assert len((await client.list_tools()).tools) == len(CALLS[name])
        assert not (await client.call_tool(tool, arguments)).is_error


@pytest.mark.process
def test_a_server_ends_by_itself_when_its_input_closes() -> None:
    ended = subprocess.run(demo_server_commands()["sql"], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    assert (ended.returncode, ended.stdout) == (0, b"")
