"""Where servers overlap, one tool of each that may be meant is in sight; requests about this machine mean its tools."""

from __future__ import annotations

import pytest

from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.search.overlap import RankedTool, counterparts
from tests.unit.catalogs import gateway_over, mcp_tool, running

GITHUB = running(
    "github",
    mcp_tool("create_issue", "Create a new issue in a GitHub repository"),
    mcp_tool("update_issue", "Update an issue in a GitHub repository"),
    mcp_tool("list_issues", "List the issues of a GitHub repository"),
    mcp_tool("list_commits", "List the commits of a branch in a GitHub repository"),
)
LINEAR = running("linear", mcp_tool("linear_create_issue", "Creates an issue for a team"))
GIT = running("git", mcp_tool("git_log", "Shows the commit logs", {"repo_path": {"type": "string"}}))


async def text_of(gateway: Gateway, request: str) -> str:
    return gateway.find(request, limit=1, detail=Detail.SIGNATURE).text


async def test_the_same_action_of_another_server_is_named_beside_the_first() -> None:
    assert "linear_create_issue" in await text_of(await gateway_over(GITHUB, LINEAR), "create an issue")


async def test_a_request_that_names_a_server_means_that_one_alone() -> None:
    assert "linear_create_issue" not in await text_of(await gateway_over(GITHUB, LINEAR), "create an issue in GitHub")


@pytest.mark.parametrize("request_", ["list commits of a local repository", "show the commits in ~/code/shop"])
async def test_a_request_about_this_machine_means_the_tool_that_takes_a_path(request_: str) -> None:
    gateway = await gateway_over(GITHUB, GIT)
    assert gateway.find(request_, detail=Detail.SIGNATURE).tools[0].tool.server == "git"


def ranked(*tools: tuple[int, str, str, float]) -> list[RankedTool]:
    return [RankedTool(at, server, name, of, score) for at, (server, name, of, score) in enumerate(tools)]


def test_a_counterpart_does_the_same_to_the_same_thing() -> None:
    first = (0, "create issue", "github", 0.9)
    delete, create = (1, "delete issue", "gitlab", 0.8), (2, "jira create issue", "atlassian", 0.7)
    assert counterparts("open a ticket", ranked(first, delete, create, (3, "create user", "x", 0.7))) == (2,)


def test_only_the_nearest_of_each_server_is_a_counterpart_and_none_that_is_far_behind() -> None:
    first, near = (0, "create issue", "github", 0.9), (1, "create issue", "gitlab", 0.8)
    again, far = (1, "create issue link", "gitlab", 0.7), (2, "create issue", "linear", 0.2)
    assert counterparts("create an issue", ranked(first, near, again, far)) == (1,)


def test_no_tool_is_looked_at_beyond_the_first_that_is_far_behind() -> None:
    taken = iter(ranked((0, "create issue", "a", 0.9), (1, "create issue", "b", 0.2), (2, "create issue", "c", 0.1)))
    assert counterparts("create an issue", taken) == ()
    assert [tool.server_name for tool in taken] == ["c"]
