"""Public names: the tool's own name where that is unique, else with its server's; always unique, always the same."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.domain.naming import ServerNames, alias, is_listable, public_names


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


ANY_NAME = st.one_of(
    PIECES,
    st.text(min_size=1, max_size=5),
    st.sampled_from(["a.b", "a/b", "a_b", "x" * 200, "x" * 199 + "y", "検索", "a b", "fs__a_b"]),
)


@given(tools=st.lists(st.tuples(st.one_of(ANY_NAME, st.just("fs")), ANY_NAME), unique=True, max_size=25))
def test_a_tool_is_only_listed_under_a_name_that_models_apis_accept(tools: list[tuple[str, str]]) -> None:
    names = public_names(tools, accepts=is_listable)
    assert all(re.fullmatch("^[a-zA-Z0-9_-]{1,64}$", name) for name in names)
    assert len(set(names)) == len(tools)
    servers = ServerNames(server for server, _ in tools)
    for (server, _), name in zip(tools, names, strict=True):
        assert servers.meant(name).keys() <= {server}
    # Restarts list servers in another order.
    again = list(reversed(tools))
    assert dict(zip(again, public_names(again, accepts=is_listable), strict=True)) == dict(
        zip(tools, names, strict=True)
    )


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        ([("fs", "files.read"), ("fs", "list")], ["fs__files_read", "list"]),
        ([("fs", "fs.read")], ["fs__fs_read"]),
        # Several that would become the same, or another's own name, get one that says which they are.
        ([("fs", "a.b"), ("fs", "a/b")], [alias("fs", "a.b"), alias("fs", "a/b")]),
        ([("fs", "a.b"), ("fs", "a_b")], [alias("fs", "a.b"), "a_b"]),
        ([("my server", "run"), ("other", "run")], [alias("my server", "run"), "other__run"]),
    ],
)
def test_a_name_that_models_apis_refuse_is_listed_with_its_server_and_only_letters_that_they_accept(
    tools: list[tuple[str, str]], names: list[str]
) -> None:
    assert public_names(tools, accepts=is_listable) == names


def test_a_prompts_name_may_have_any_letters() -> None:
    assert public_names([("fs", "zusammenfassen für alle")]) == ["zusammenfassen für alle"]


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
