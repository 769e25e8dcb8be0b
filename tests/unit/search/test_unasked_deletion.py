"""A tool that deletes or overwrites ranks below its neighbours where nobody asked for that."""

from __future__ import annotations

import pytest

from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.search.actions import asks_to_destroy, destroys
from mcp_optimizer.search.words import words
from tests.unit.catalogs import gateway_over, mcp_tool, running

MEMORY = running(
    "memory",
    mcp_tool("delete_observations", "Delete specific observations of entities in the knowledge graph"),
    mcp_tool("add_observations", "Add new observations to entities in the knowledge graph"),
    mcp_tool("read_graph", "Read the knowledge graph"),
)


@pytest.mark.parametrize("name", ["delete_file", "removeTag", "git_reset", "purge_queue", "drop_table", "clear_cache"])
def test_a_name_says_that_its_tool_deletes(name: str) -> None:
    assert destroys(words(name))


@pytest.mark.parametrize("name", ["create_file", "list_deleted_files", "get_trash", "undelete_file", "write_file", ""])
def test_a_name_that_only_speaks_of_it_does_not(name: str) -> None:
    assert not destroys(words(name))


@pytest.mark.parametrize(
    "request_",
    [
        "delete the branch",
        "get rid of old logs",
        "take this photo out of the library",
        "I no longer need it",
        "undo that",
    ],
)
def test_a_request_may_ask_for_it_in_many_words(request_: str) -> None:
    assert asks_to_destroy(words(request_))


@pytest.mark.parametrize("request_", ["remember that Anna likes tea", "show the branches", "what is in the graph"])
def test_most_requests_do_not_ask_for_it(request_: str) -> None:
    assert not asks_to_destroy(words(request_))


async def test_what_deletes_comes_after_what_does_not() -> None:
    gateway = await gateway_over(MEMORY)

    def ranked(request: str) -> list[str]:
        return [hit.tool.name for hit in gateway.find(request, detail=Detail.SIGNATURE).tools]

    assert ranked("observations of entities in the knowledge graph")[0] != "delete_observations"
    assert ranked("remove observations of entities")[0] == "delete_observations"
    assert ranked("delete_observations")[0] == "delete_observations"
