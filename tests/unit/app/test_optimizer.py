"""The library: servers from a dictionary, use before the start, and what found tools say of themselves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer import McpTool, Optimizer
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ConfigurationError, NotStarted

SQL = {"command": sys.executable, "args": ["-m", "mcp_optimizer_demo.sql"]}
NOTHING: dict[str, Any] = {"database": "none", "encoder": "none"}


def servers(config: Any, **options: Any) -> dict[str, ServerStatus]:
    optimizer = Optimizer.from_config(config, **NOTHING, **options)
    return {state.name: state.status for state in optimizer.servers()}


@pytest.mark.parametrize(
    "config",
    [{"mcpServers": {"shop": SQL}}, {"servers": {"shop": SQL}}, {"mcp": {"servers": {"shop": SQL}}}, {"shop": SQL}],
)
def test_a_dictionary_is_what_a_server_file_contains_or_the_servers_by_name(config: dict[str, Any]) -> None:
    assert list(servers(config)) == ["shop"]


def test_a_server_may_be_called_like_a_key_of_a_server_file() -> None:
    assert list(servers({"servers": SQL, "mcp": SQL, "mcpServers": SQL})) == ["servers", "mcp", "mcpServers"]


def test_a_dictionary_is_checked_as_a_file_is() -> None:
    optimizer = Optimizer.from_config({"shop": {"comand": "x"}, "off": {**SQL, "disabled": True}}, **NOTHING)
    shop, off = optimizer.servers()
    assert shop.status is ServerStatus.FAILED
    assert shop.reason == '"comand" is not a key of a server; did you mean "command"? (in the given configuration)'
    assert off.status is ServerStatus.STOPPED


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mcpServers": ["a"]}, "the given configuration: 'mcpServers' must be an object of servers by name"),
        ({"shop": {"command": Path("x")}}, "the given configuration cannot be written as JSON"),
    ],
)
def test_a_wrong_dictionary_is_refused_with_what_is_wrong(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        servers(config)


def test_a_dictionary_without_an_end_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["shop"] = endless
    with pytest.raises(ConfigurationError, match="cannot be written as JSON"):
        servers(endless)


def test_servers_and_the_demo_are_not_given_together() -> None:
    with pytest.raises(ConfigurationError, match="either servers or demo"):
        servers({"shop": SQL}, demo=True)


async def test_an_optimizer_that_is_not_started_says_so_instead_of_finding_nothing() -> None:
    optimizer = Optimizer.from_config({}, **NOTHING)
    with pytest.raises(NotStarted, match="async with optimizer"):
        await optimizer.find("anything")
    with pytest.raises(NotStarted):
        await optimizer.call("anything")
    with pytest.raises(NotStarted):
        await optimizer.read_result("r1")
    with pytest.raises(NotStarted):
        optimizer.tools()
    async with optimizer:
        assert optimizer.tools().total == 0
    with pytest.raises(NotStarted, match="has ended"):
        optimizer.tools()


@pytest.mark.process
async def test_found_tools_say_their_server_and_how_likely_they_answer() -> None:
    async with Optimizer.from_config({"shop": SQL}, **NOTHING) as optimizer:
        found = await optimizer.find("run a SELECT query on the database")
    assert {tool.server for tool in found.tools} == {"shop"}
    scores = [tool.score for tool in found.tools]
    assert all(0 <= score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)
    assert '"score"' not in found.model_dump_json()


def test_what_a_server_calls_server_or_score_stays_in_the_definition() -> None:
    sent = {"name": "t", "inputSchema": {}, "server": "mine", "score": "high", "_found": 1}
    tool = McpTool.model_validate(sent).mark_found("shop", 0.5)
    assert (tool.server, tool.score) == ("shop", 0.5)
    assert McpTool.model_validate_json(tool.model_dump_json()) == McpTool.model_validate(sent)
    assert tool.model_dump() == sent
