"""The rows of servers and tools: written together, changed one by one, and gone with their server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mcp_optimizer.domain.tools import ServerStatus, ToolUpdateDetails
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import mcp_tool
from tests.unit.db.filling import fill, opened, row


async def test_every_connection_enforces_foreign_keys(place: Path | str) -> None:
    async with opened(place) as catalog:
        with pytest.raises(CatalogError, match=r"(?i)foreign key"):
            await catalog.replace_tools("no such server", [row(mcp_tool("a"))])


@pytest.mark.requirement("A3", "DM-relations")
async def test_the_tools_of_a_forgotten_server_go_with_it(place: Path | str) -> None:
    async with opened(place) as catalog:
        gone, kept = await fill(catalog, "github"), await fill(catalog, "slack")
        await catalog.delete_server(gone)
        assert [server.name for server in await catalog.servers()] == ["slack"]
        assert (await catalog.tools(gone), len(await catalog.tools(kept))) == ([], 2)


@pytest.mark.requirement("R-5")
async def test_a_negative_count_cannot_be_stored(place: Path | str) -> None:
    async with opened(place) as catalog:
        server_id = await fill(catalog)
        with pytest.raises(CatalogError, match=r"(?i)check"):
            await catalog.replace_tools(server_id, [row(mcp_tool("new"), tokens=-1)])
        assert len(await catalog.tools(server_id)) == 2


async def test_replacing_tools_writes_only_what_changed(place: Path | str) -> None:
    async with opened(place) as catalog:
        server_id = await fill(catalog, "github", mcp_tool("a"), mcp_tool("b"), mcp_tool("c"))
        before = {tool.details.name: tool for tool in await catalog.tools(server_id)}
        assert await catalog.replace_tools(server_id, [row(mcp_tool(name)) for name in "cab"]) == 0
        changed = [row(mcp_tool("a")), row(mcp_tool("b", "now described"), 9), row(mcp_tool("d"))]
        # Four changes: b is deleted and inserted again, c is deleted, d is inserted.
        assert await catalog.replace_tools(server_id, changed) == 4
        after = {tool.details.name: tool for tool in await catalog.tools(server_id)}
    assert list(after) == ["a", "b", "d"]
    assert after["a"] == before["a"]
    assert (after["b"].details.description, after["b"].token_count) == ("now described", 9)


async def test_a_tool_that_is_counted_anew_gets_its_new_count(place: Path | str) -> None:
    async with opened(place) as catalog:
        server_id = await fill(catalog, "github", mcp_tool("a"), mcp_tool("b"))
        assert await catalog.replace_tools(server_id, [row(mcp_tool("a"), 5), row(mcp_tool("b"))]) > 0
        assert [tool.token_count for tool in await catalog.tools(server_id)] == [5, 7]


async def test_a_server_of_one_name_and_fingerprint_is_one_server(place: Path | str) -> None:
    async with opened(place) as catalog:
        first = await catalog.save_server("github", "f1", "stdio", ServerStatus.RUNNING)
        assert await catalog.save_server("github", "f1", "stdio", ServerStatus.FAILED) == first
        assert await catalog.save_server("github", "f2", "stdio", ServerStatus.RUNNING) != first
        assert [(server.fingerprint, server.status) for server in await catalog.servers()] == [
            ("f1", ServerStatus.FAILED),
            ("f2", ServerStatus.RUNNING),
        ]


@pytest.mark.requirement("A2", "DM-lifecycle-3")
async def test_new_details_of_a_tool_are_recounted_in_the_same_transaction(place: Path | str) -> None:
    counter = TokenCounter()
    async with opened(place) as catalog:
        server_id = await fill(catalog, "github", mcp_tool("a"))
        (tool,) = await catalog.tools(server_id)
        longer = mcp_tool("a", "A much longer description than before", futureField=1)
        await catalog.update_tool(tool.id, ToolUpdateDetails(details=longer), counter)
        (updated,) = await catalog.tools(server_id)
        assert (updated.details, updated.token_count) == (longer, counter.count_tool_tokens(longer))
        assert updated.last_updated > tool.last_updated
        assert updated.created_at == tool.created_at

        class Failing(TokenCounter):
            def count_tokens(self, text: str) -> int:
                raise ValueError("cannot count")

        with pytest.raises(ValueError, match="cannot count"):
            await catalog.update_tool(tool.id, ToolUpdateDetails(details=mcp_tool("b")), Failing())
        assert await catalog.tools(server_id) == [updated]


@pytest.mark.requirement("DM-ToolUpdateDetails")
async def test_an_update_changes_what_it_names_and_nothing_else(place: Path | str) -> None:
    async with opened(place) as catalog:
        server_id, other_id = await fill(catalog, "github", mcp_tool("a")), await fill(catalog, "slack", mcp_tool("b"))
        (tool,) = await catalog.tools(server_id)
        vector = np.array([0.5, -1.0, 0.25], dtype=np.float32)
        await catalog.update_tool(tool.id, ToolUpdateDetails(details_embedding=vector), TokenCounter())
        (updated,) = await catalog.tools(server_id)
        assert updated.details_embedding is not None
        assert updated.details_embedding.tolist() == vector.tolist()
        assert (updated.details, updated.token_count) == (tool.details, 7)
        await catalog.update_tool(tool.id, ToolUpdateDetails(token_count=3, mcpserver_id=other_id), TokenCounter())
        assert await catalog.tools(server_id) == []
        assert [(found.details.name, found.token_count) for found in await catalog.tools(other_id)] == [
            ("a", 3),
            ("b", 7),
        ]


async def test_counts_are_kept_by_definition_and_encoding(place: Path | str) -> None:
    async with opened(place) as catalog:
        await catalog.save_token_counts({f"h{number}": number for number in range(1200)}, "cl100k_base")
        await catalog.save_token_counts({"h1": 99}, "o200k_base")
        await catalog.save_token_counts({"h1": 1}, "cl100k_base")
        assert await catalog.token_counts(["h1", "h1199", "unknown"], "cl100k_base") == {"h1": 1, "h1199": 1199}
        assert await catalog.token_counts(["h1", "h2"], "o200k_base") == {"h1": 99}
        assert len(await catalog.token_counts([f"h{number}" for number in range(2000)], "cl100k_base")) == 1200


async def test_vectors_are_kept_by_definition_and_encoder(place: Path | str) -> None:
    async with opened(place) as catalog:
        await catalog.save_vectors({"h1": np.array([1.0, 2.0])}, "small")
        assert await catalog.vectors(["h1", "h2"], "small") == {"h1": np.array([1.0, 2.0], dtype="<f4").tobytes()}
        assert await catalog.vectors(["h1"], "large") == {}


async def test_other_lists_of_a_server_are_kept_by_name_and_fingerprint_and_go_with_it(place: Path | str) -> None:
    async with opened(place) as catalog:
        running = ServerStatus.RUNNING
        one, other = [await catalog.save_server("github", mark, "stdio", running) for mark in ("one", "other")]
        await catalog.save_lists(one, {"prompts": "[1]", "resources": "[2]"})
        await catalog.save_lists(other, {"prompts": "[3]"})
        await catalog.save_lists(one, {"prompts": "[4]", "resourceTemplates": "[]"})
        kept = {"prompts": "[4]", "resources": "[2]", "resourceTemplates": "[]"}
        assert await catalog.lists({"github": "one", "slack": "one"}) == {"github": kept}
        assert await catalog.lists({"github": "other"}) == {"github": {"prompts": "[3]"}}
        assert await catalog.lists({"github": "unheard of"}) == {}
        await catalog.save_lists(one, {"prompts": None, "resources": "[5]"})
        assert await catalog.lists({"github": "one"}) == {"github": {"resources": "[5]", "resourceTemplates": "[]"}}
        await catalog.delete_server(one)
        assert await catalog.lists({"github": "one"}) == {}
        with pytest.raises(CatalogError, match=r"(?i)foreign key"):
            await catalog.save_lists(one, {"prompts": "[]"})
