"""Public names: the tool's own name where that is unique, else with its server's; always unique, always the same."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.domain.naming import ServerNames, alias, public_names


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
        # A tool of c is named like the public name of a's tool. That name belongs to a.
        (
            [("a", "search"), ("b", "search"), ("c", "a__search")],
            ["a__search", "b__search", "c__a__search"],
        ),
        # One name could be split in two ways, so neither tool gets it.
        (
            [("a", "b__c"), ("a__b", "c"), ("x", "b__c"), ("y", "c")],
            ["a__a__b__c", alias("a__b", "c"), "x__b__c", "y__c"],
        ),
        # The alias that is used instead is also the name of another server's tool.
        (
            [("a", "b__c"), ("a__b", "c"), ("x", "b__c"), ("y", "c"), ("z", alias("a__b", "c"))],
            ["a__a__b__c", alias("a__b", "c"), "x__b__c", "y__c", f"z__{alias('a__b', 'c')}"],
        ),
    ],
)
def test_a_name_that_already_looks_like_server_and_tool_is_told_apart(
    tools: list[tuple[str, str]], names: list[str]
) -> None:
    assert public_names(tools) == names


PIECES = st.lists(st.sampled_from(["a", "b", "_", "__", ".", "_2", "mcp__"]), min_size=1, max_size=4).map("".join)


@given(tools=st.lists(st.tuples(PIECES, PIECES), unique=True, max_size=25))
def test_names_are_unique_and_the_same_tools_always_get_the_same_names(tools: list[tuple[str, str]]) -> None:
    names = public_names(tools)
    assert len(set(names)) == len(tools)
    assert names == public_names(list(tools))
    servers = ServerNames(server for server, _ in tools)
    for (server, tool), name in zip(tools, names, strict=True):
        # If a name contains a server's name, that is the tool's server.
        assert servers.meant(name).keys() <= {server}
        assert name == tool or servers.meant(name) or name == alias(server, tool)


@pytest.mark.parametrize(
    ("name", "server", "tool"),
    [
        ("github__create", "github", "create"),
        ("github.create", "github", "create"),
        ("github/create", "github", "create"),
        ("github:create", "github", "create"),
        ("GitHub__create", "github", "create"),
        ("mcp__github__create", "github", "create"),
        ("a__b__c", "a__b", "c"),
        ("mcp__create", "mcp", "create"),
        ("mcp__mcp__create", "mcp", "mcp__create"),
        ("github_create", "github", None),
        ("githubcreate", "github", None),
        ("github__", "github", None),
        ("create", "github", None),
        ("gitlab__create", "github", None),
    ],
)
def test_the_servers_part_of_a_name_is_told_from_the_tools(name: str, server: str, tool: str | None) -> None:
    meant = ServerNames([server, "other"]).meant(name)
    assert meant.get(server, [None])[0] == tool


def test_a_name_of_any_length_is_read_in_no_time() -> None:
    servers = ServerNames(f"server{number}" for number in range(2_000))
    started = time.process_time()
    for name in ("a__" * 100_000, "server1__" * 30_000, "x" * 300_000, "mcp__" * 60_000):
        servers.meant(name)
        servers.own_names(name, "server1")
    assert time.process_time() - started < 0.5
