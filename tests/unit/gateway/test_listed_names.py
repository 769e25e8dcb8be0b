"""Every tool is listed under a name that models' APIs accept, and can be called by that name and by its own."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.catalog.tool_forms import Detail, ToolForms
from mcp_optimizer.domain.caller import LOCAL
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.profiles.lists import ToolLists
from mcp_optimizer.profiles.tiers import ProfileName
from mcp_optimizer.token_counter import TokenCounter
from tests.trying import at_most
from tests.unit.catalogs import RecordingPool, gateway_over, live_catalog, mcp_tool, running

LISTABLE = re.compile("[a-zA-Z0-9_-]{1,64}")
ODD = ["files.read", "files/read", "suche_für_alle", "x" * 200, "x" * 199 + "y", "a b", "検索", "plain"]


async def test_whatever_tools_are_called_lists_and_searches_show_names_that_models_apis_accept() -> None:
    tools = [mcp_tool(name, f"Reads {name}") for name in ODD]
    gateway = await gateway_over(running("fs", *tools), running("other", mcp_tool("files.read", "Reads files")))
    listed = [tool.name for tool in gateway.list_tools().tools]
    found = [tool.tool.name for tool in gateway.find("reads files", limit=20, detail=Detail.SIGNATURE).tools]
    assert all(LISTABLE.fullmatch(name) for name in [*listed, *found])
    assert len(set(listed)) == len(ODD) + 1
    assert "plain" in listed


async def test_profiles_register_tools_under_names_that_models_apis_accept() -> None:
    catalog = await live_catalog(running("fs", *(mcp_tool(name, f"Reads {name}") for name in ODD)))
    counter = TokenCounter()
    lists = ToolLists(catalog, ToolForms(counter), counter)
    registered = lists.profiles().by_name[ProfileName.FULL].tools
    assert registered
    assert all(LISTABLE.fullmatch(name) for name in registered)


@pytest.mark.parametrize("name", ODD)
async def test_a_tool_is_called_by_its_listed_name_and_by_its_own(name: str) -> None:
    pool = RecordingPool()
    gateway = await gateway_over(running("fs", *(mcp_tool(odd) for odd in ODD)), pool=pool)
    [listed] = [tool.name for tool in gateway.list_tools().tools if tool.record.name == name]
    for spoken in (listed, name):
        await gateway.call(spoken)
        await gateway.pass_on(spoken, None, LOCAL)
    await gateway.call(name, server_name="fs")
    assert [params["name"] for _, _, params in pool.calls] == [name] * 5


@settings(max_examples=at_most(30), deadline=None)
@given(names=st.lists(st.text(min_size=1, max_size=80), unique=True, min_size=1, max_size=8))
async def test_a_listed_name_always_means_the_tool_it_was_listed_for(names: list[str]) -> None:
    states = running("fs", *map(mcp_tool, names)), running("a", *map(mcp_tool, names[::2]))
    gateway = await gateway_over(*states)
    again = await gateway_over(*reversed(states))
    listed = {tool.name: tool.key for tool in gateway.list_tools().tools}
    assert listed == {tool.name: tool.key for tool in again.list_tools().tools}
    for name, key in listed.items():
        assert LISTABLE.fullmatch(name)
        assert gateway.resolve(name).key == key


async def test_a_name_that_two_servers_have_is_not_guessed() -> None:
    gateway = await gateway_over(running("a", mcp_tool("x.y")), running("b", mcp_tool("x.y")))
    with pytest.raises(OptimizerError, match=r"a__x_y"):
        gateway.resolve("x.y")
    with pytest.raises(OptimizerError):
        await gateway.pass_on("x.y", None, LOCAL)
