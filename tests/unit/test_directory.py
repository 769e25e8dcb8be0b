"""Lists of many servers as one, under names that are unique, and the way back from a name to its server."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import MCPError

from mcp_optimizer.db.models import ServerStatus
from mcp_optimizer.errors import ServerUnavailable
from mcp_optimizer.naming import public_uris, uri_without_server
from mcp_optimizer.passing.directory import PROMPTS, RESOURCES, TEMPLATES, Directory
from mcp_optimizer.passing.envelope import for_era
from mcp_optimizer.passing.paging import page
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.state import UpstreamState

FILES = {"resources/list": {"resources": [{"uri": "file:///a", "x": None}, {"uri": "file:///both"}, "nonsense"]}}
NOTES = {
    "resources/list": {"resources": [{"uri": "file:///both"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "note://{id}"}]},
    "prompts/list": {"prompts": [{"name": "sum up"}], "ttlMs": 5, "cacheScope": "public"},
}


class Servers:
    """Servers that list what they are told to, and count how often they are asked."""

    def __init__(self, **capabilities: dict[str, Any]) -> None:
        self.asked: list[tuple[str, str]] = []
        self.down: set[str] = set()
        self.answers: dict[str, dict[str, Any]] = {"files": FILES, "my notes": NOTES}
        self.capabilities: dict[str, dict[str, Any]] = {"resources": {}, "prompts": {}, **capabilities}
        self.directory = Directory(self.states, self.call)

    def states(self) -> dict[str, UpstreamState]:
        return {
            name: UpstreamState(ServerSpec(name, Transport.STDIO), ServerStatus.RUNNING, capabilities=self.capabilities)
            for name in self.answers
        }

    async def call(self, server: str, method: str, _params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((server, method))
        if server in self.down:
            raise ServerUnavailable(server, f"{server} is down")
        return dict(self.answers[server].get(method, {}))


async def test_a_uri_stays_as_it_is_where_it_is_unique() -> None:
    found = await Servers().directory.listed(RESOURCES)
    assert [entry.public for entry in found.entries] == ["file:///a", "files+file:///both", "my-notes+file:///both"]
    assert found.entries[0].definition == {"uri": "file:///a", "x": None}


async def test_every_public_uri_leads_back_to_its_server() -> None:
    directory = Servers().directory
    for kind in (RESOURCES, TEMPLATES):
        for entry in (await directory.listed(kind)).entries:
            assert (entry.server, entry.own) in await directory.resource(entry.public)
    assert await directory.resource("note://7") == [("my notes", "note://7")]
    # Nobody lists it: anybody may have it.
    assert await directory.resource("other://x") == [("files", "other://x"), ("my notes", "other://x")]


async def test_a_server_that_tells_changes_is_asked_once_and_the_others_every_time() -> None:
    quiet, telling = Servers(), Servers(prompts={"listChanged": True})
    for servers in (quiet, telling):
        for _ in range(3):
            await servers.directory.listed(PROMPTS)
    assert len(quiet.asked) == 6
    assert len(telling.asked) == 2
    telling.directory.forget("files", "prompts")
    await telling.directory.listed(PROMPTS)
    assert len(telling.asked) == 3


async def test_a_server_that_fails_is_left_out_and_only_if_all_fail_is_that_an_error() -> None:
    servers = Servers()
    servers.down = {"files"}
    assert [entry.own for entry in (await servers.directory.listed(PROMPTS)).entries] == ["sum up"]
    servers.down = {"files", "my notes"}
    with pytest.raises(ServerUnavailable):
        await servers.directory.listed(PROMPTS)


async def test_a_list_may_be_kept_no_longer_than_its_least_lasting_part() -> None:
    found = await Servers().directory.listed(PROMPTS)
    assert (found.ttl_ms, found.scope) == (0, "private")


def test_server_names_become_schemes() -> None:
    assert public_uris([("A b", "x:1"), ("c", "x:1"), ("c", "x:1")]) == ["a-b+x:1", "c+x:1", "c+x:1"]
    assert uri_without_server("a-b+x:1", ["A b", "c"]) == ("A b", "x:1")
    assert uri_without_server("git+ssh://x", ["A b", "c"]) is None


def test_pages_follow_their_cursor_and_a_strange_cursor_is_refused() -> None:
    entries = [{"name": str(number)} for number in range(2_500)]
    first = page(entries, "tools", None)
    second = page(entries, "tools", {"cursor": first["nextCursor"]})
    last = page(entries, "tools", {"cursor": second["nextCursor"]})
    assert [*first["tools"], *second["tools"], *last["tools"]] == entries
    assert "nextCursor" not in last
    for cursor in ("x", "0", "99999", "-1"):
        with pytest.raises(MCPError, match="list from the beginning"):
            page(entries, "tools", {"cursor": cursor})


def test_a_result_says_what_its_revision_requires_and_nothing_that_it_does_not_know() -> None:
    result = {"resultType": "complete", "ttlMs": 5, "cacheScope": "public", "content": [], "_meta": {"a": 1}}
    assert for_era(result, "2025-11-25", {"name": "g"}) == {"content": [], "_meta": {"a": 1}}
    modern = for_era({"content": []}, "2026-07-28", {"name": "g"}, ttl_ms=7)
    assert modern["resultType"] == "complete"
    assert (modern["ttlMs"], modern["cacheScope"]) == (7, "private")
    asking = for_era({"resultType": "input_required"}, "2026-07-28", {"name": "g"}, ttl_ms=7)
    assert "ttlMs" not in asking
