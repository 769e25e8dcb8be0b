"""With a real client and server: what a model reads when it asks for a part of a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.conftest import WriteServers
from tests.e2e.running import command, demo_entry, over_stdio, until_found

NOTHING = "The call succeeded. select matched nothing"


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"kanban": demo_entry("kanban")})


async def texts(client: Client, tool: str, select: str, **parameters: Any) -> list[str]:
    asked = {"tool_name": tool, "parameters": parameters, "select": select}
    result = await client.call_tool("call_tool", asked)
    assert not result.is_error
    return [block.text for block in result.content if block.type == "text"]


async def test_a_model_guesses_wrongly_counts_and_pays_only_for_the_part(config: Path, tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    async with over_stdio(config, "--database", database) as client:
        await until_found(client, "create a tag", "create_tag")
        made, notice = await texts(client, "create_tag", "label", name="urgent please")
        assert json.loads(made)["tag"]["name"] == "urgent please"
        assert notice == f"[{NOTHING}: there is no key label. This is the complete result.]"
        assert await texts(client, "create_tag", "tag.name", name="later please") == ['"later please"']
        [notice] = await texts(client, "list_cards", "cards[].owner.name")
        assert notice.startswith(f"[{NOTHING}: none of 50 items has the key owner. Keys: {{card_id, ")
        counted, line, _all_of_it = await texts(client, "list_cards", "count_by(cards, &owner_user_id)")
        assert sum(json.loads(counted).values()) == 50
        assert line == "[50 rows: the tool's limit (per_page); there are more.]"
    results = (await command("report", "--config", config, "--database", database, "--json")).json["usage"]["results"]
    assert results["before"] > 10 * results["after"]
