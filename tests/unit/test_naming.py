"""Public names: a tool's own where that is enough, else with its server's; always unique, always the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.naming import public_names, without_server


def test_a_name_that_only_one_server_has_stays_as_it_is() -> None:
    assert public_names([("github", "create_issue"), ("slack", "send")]) == ["create_issue", "send"]


def test_a_name_that_several_servers_have_carries_the_server() -> None:
    assert public_names([("github", "search"), ("github", "star"), ("slack", "search")]) == [
        "github__search",
        "star",
        "slack__search",
    ]


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        # Somebody's own tool already looks like the name that another one would get: it keeps its name.
        (
            [("a", "search"), ("b", "search"), ("c", "a__search")],
            ["a__search_2", "b__search", "a__search"],
        ),
        # Two ways to split one name.
        (
            [("a", "b__c"), ("a__b", "c"), ("x", "b__c"), ("y", "c")],
            ["a__b__c", "a__b__c_2", "x__b__c", "y__c"],
        ),
        # And the way out is taken as well.
        (
            [("a", "t"), ("b", "t"), ("c", "a__t"), ("d", "a__t_2")],
            ["a__t_3", "b__t", "a__t", "a__t_2"],
        ),
    ],
)
def test_a_name_that_already_looks_like_server_and_tool_is_told_apart(
    tools: list[tuple[str, str]], names: list[str]
) -> None:
    assert public_names(tools) == names


PIECES = st.lists(st.sampled_from(["a", "b", "_", "__", "_2", "_3"]), min_size=1, max_size=4).map("".join)


@given(tools=st.lists(st.tuples(PIECES, PIECES), unique=True, max_size=25))
def test_names_are_unique_and_the_same_tools_always_get_the_same_names(tools: list[tuple[str, str]]) -> None:
    names = public_names(tools)
    assert len(set(names)) == len(tools)
    assert names == public_names(list(tools))
    own = [tool for _, tool in tools]
    for (server, tool), name in zip(tools, names, strict=True):
        assert name == tool if own.count(tool) == 1 else name.startswith(f"{server}__{tool}")


@pytest.mark.parametrize(
    ("name", "server", "tool"),
    [
        ("github__create", "github", "create"),
        ("github.create", "github", "create"),
        ("github/create", "github", "create"),
        ("github:create", "github", "create"),
        ("mcp__github__create", "github", "create"),
        ("a__b__c", "a__b", "c"),
        ("mcp__create", "mcp", "create"),
        ("mcp__mcp__create", "mcp", "create"),
        ("github_create", "github", None),
        ("githubcreate", "github", None),
        ("create", "github", None),
        ("gitlab__create", "github", None),
    ],
)
def test_the_servers_part_of_a_name_is_told_from_the_tools(name: str, server: str, tool: str | None) -> None:
    assert without_server(name, server) == tool
