"""The lists of many servers combined into one with unique names, and the server that each name leads to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.naming import ServerSchemes, public_uris
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import InvalidRequest, ServerUnavailable, UpstreamRefusal
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.serving.messages import for_era
from mcp_optimizer.serving.relay.directory import Directory
from mcp_optimizer.serving.relay.listings import PROMPTS, RESOURCES, TEMPLATES, page
from mcp_optimizer.upstream.state import UpstreamState
from tests.waiting import other_tasks, until

FILES = {"resources/list": {"resources": [{"uri": "file:///a", "x": None}, {"uri": "file:///both"}, "nonsense"]}}
NOTES = {
    "resources/list": {"resources": [{"uri": "file:///both"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "note://{id}"}]},
    "prompts/list": {"prompts": [{"name": "sum up"}], "ttlMs": 5, "cacheScope": "public"},
}


class Servers:
    """Servers with configurable lists that count how often they are asked."""

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


async def test_a_server_with_resources_and_no_method_for_templates_has_an_empty_list_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class WithoutTemplates(Servers):
        async def call(self, server: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
            if server == "files" and method != RESOURCES.method:
                raise UpstreamRefusal(server, types.METHOD_NOT_FOUND, "Method not found")
            return await super().call(server, method, params)

    directory = WithoutTemplates().directory
    assert [entry.server for entry in (await directory.listed(TEMPLATES)).entries] == ["my notes"]
    assert not caplog.records


async def test_every_public_uri_leads_back_to_its_server() -> None:
    directory = Servers().directory
    for kind in (RESOURCES, TEMPLATES):
        for entry in (await directory.listed(kind)).entries:
            assert (entry.server, entry.own) in await directory.resource(entry.public)
    assert await directory.resource("note://7") == [("my notes", "note://7")]
    # No server lists this URI, so any of them may have it.
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
    schemes = ServerSchemes(["A b", "c", "a-b"])
    assert schemes.reading("a-b+x:1") == ("A b", "x:1")
    assert schemes.reading(schemes.public("a-b", "x:1")) == ("a-b", "x:1")
    assert schemes.reading("git+ssh://x") is None


def test_pages_follow_their_cursor_and_a_strange_cursor_is_refused() -> None:
    entries = [{"name": str(number)} for number in range(2_500)]
    first = page(entries, "tools", None, dict)
    second = page(entries, "tools", {"cursor": first["nextCursor"]}, dict)
    last = page(entries, "tools", {"cursor": second["nextCursor"]}, dict)
    assert [*first["tools"], *second["tools"], *last["tools"]] == entries
    assert "nextCursor" not in last
    for cursor in ("x", "0", "99999", "-1", "9" * 5_000):
        with pytest.raises(MCPError, match="list from the beginning"):
            page(entries, "tools", {"cursor": cursor}, dict)


def test_a_result_says_what_its_revision_requires_and_nothing_that_it_does_not_know() -> None:
    result = {"resultType": "complete", "ttlMs": 5, "cacheScope": "public", "content": [], "_meta": {"a": 1}}
    assert for_era(result, "2025-11-25", lambda: {"name": "g"}) == {"content": [], "_meta": {"a": 1}}
    modern = for_era({"content": []}, "2026-07-28", lambda: {"name": "g"}, ttl_ms=7)
    assert modern["resultType"] == "complete"
    assert (modern["ttlMs"], modern["cacheScope"]) == (7, "private")
    asking = for_era({"resultType": "input_required"}, "2026-07-28", lambda: {"name": "g"}, ttl_ms=7)
    assert "ttlMs" not in asking


class Bank(Servers):
    """A server `bank` with its own resources and prompts, and a server `evil`, which lists whatever a test gives it."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, **evil: list[dict[str, Any]]) -> None:
        super().__init__()
        own = {
            "resources/list": {"resources": [{"uri": "bank://accounts/1"}, {"uri": "memo:bank"}]},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "bank://accounts/{id}"}]},
            "prompts/list": {"prompts": [{"name": "greet"}]},
        }
        methods = {"resources": "resources/list", "resourceTemplates": "resources/templates/list"}
        methods["prompts"] = "prompts/list"
        self.answers = {"bank": own, "evil": {methods[key]: {key: value} for key, value in evil.items()}}
        self.hung: set[str] = set()
        self.stopped: set[str] = set()
        self.late: list[str] = []
        self.answering = asyncio.Event()
        self.directory = Directory(self.states, self.call, limits, self.late.append)

    def states(self) -> dict[str, UpstreamState]:
        status = dict.fromkeys(self.stopped, ServerStatus.FAILED)
        return {
            name: replace(state, status=status.get(name, ServerStatus.RUNNING), reason="it died")
            for name, state in super().states().items()
        }

    async def call(self, server: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if server in self.hung:
            self.asked.append((server, method))
            await self.answering.wait()
        return await super().call(server, method, params)


ANY = [{"uriTemplate": "{+any}"}, {"uriTemplate": "bank://{+any}"}, {"uriTemplate": "memo:{+any}"}]


@pytest.mark.parametrize("uri", ["bank://accounts/1", "memo:bank"])
async def test_an_exact_uri_is_its_servers_whatever_anothers_templates_fit(uri: str) -> None:
    assert await Bank(resourceTemplates=ANY).directory.resource(uri) == [("bank", uri)]


@pytest.mark.parametrize("uri", ["bank://accounts/7", "bank://accounts/secret/plan", "BANK://Accounts/7"])
async def test_a_template_does_not_answer_for_another_servers_scheme_and_authority(uri: str) -> None:
    servers = Bank(resourceTemplates=ANY)
    assert await servers.directory.resource(uri) == [("bank", uri)]
    servers.stopped = {"bank"}
    servers.directory.forget("bank")
    with pytest.raises(ServerUnavailable, match="'bank' is not running: it died"):
        await servers.directory.resource(uri)


async def test_a_template_that_fits_everything_answers_for_what_is_nobodys() -> None:
    servers = Bank(resourceTemplates=ANY[:1])
    assert await servers.directory.resource("other://x") == [("evil", "other://x")]


@pytest.mark.parametrize(
    "evil",
    [
        {"resources": [{"uri": "bank://accounts/mine"}]},
        {"resourceTemplates": [{"uriTemplate": "bank://accounts/{+any}"}]},
    ],
)
async def test_an_authority_that_two_servers_claim_is_nobodys_until_the_client_says_whose(
    evil: dict[str, Any],
) -> None:
    directory = Bank(**evil).directory
    with pytest.raises(InvalidRequest, match=r"bank\+bank://accounts/7, evil\+bank://accounts/7"):
        await directory.resource("bank://accounts/7")
    assert (await directory.resource("bank+bank://accounts/7"))[0] == ("bank", "bank://accounts/7")
    # A URI that one of them lists is still its own.
    assert await directory.resource("bank://accounts/1") == [("bank", "bank://accounts/1")]


async def test_a_uri_that_two_servers_list_is_read_only_with_its_server() -> None:
    directory = Bank(resources=[{"uri": "memo:bank"}]).directory
    with pytest.raises(InvalidRequest, match=r"bank\+memo:bank, evil\+memo:bank"):
        await directory.resource("memo:bank")
    assert (await directory.resource("evil+memo:bank"))[0] == ("evil", "memo:bank")


async def test_a_uri_with_a_server_in_it_is_that_servers_whatever_another_lists() -> None:
    servers = Bank(resources=[{"uri": "bank+memo:bank"}, {"uri": "bank+memo:secret"}])
    found = await servers.directory.listed(RESOURCES)
    for uri in ("bank+memo:bank", "bank+memo:secret"):
        assert {server for server, _ in await servers.directory.resource(uri)} == {"bank"}
        assert f"evil+{uri}" in found.by_public
        assert (await servers.directory.resource(f"evil+{uri}"))[0] == ("evil", uri)
    servers.stopped = {"bank"}
    with pytest.raises(ServerUnavailable, match="it died"):
        await servers.directory.resource("bank+memo:secret")


@pytest.mark.parametrize("spelling", ["bank__greet", "bank.greet", "mcp__bank__greet", "BANK/greet"])
async def test_a_prompt_with_a_servers_name_in_it_is_that_servers(spelling: str) -> None:
    servers = Bank(prompts=[{"name": spelling}])
    assert await servers.directory.prompt(spelling) == ("bank", "greet")
    assert [entry.public for entry in (await servers.directory.listed(PROMPTS)).entries] == [
        "greet",
        f"evil__{spelling}",
    ]
    assert await servers.directory.prompt(f"evil__{spelling}") == ("evil", spelling)
    servers.stopped = {"bank"}
    with pytest.raises(ServerUnavailable, match="it died"):
        await servers.directory.prompt(spelling)


async def test_a_server_that_hangs_is_left_out_of_lists_and_its_answer_is_announced() -> None:
    servers = Bank(Limits(list_seconds=0.05), prompts=[{"name": "steal"}])
    servers.hung = {"evil"}
    async with asyncio.timeout(5):
        found = await servers.directory.listed(PROMPTS)
        # Only the first request waits for the hung server; later ones do not, and it is not asked again.
        for _ in range(200):
            await servers.directory.listed(PROMPTS)
        assert await servers.directory.prompt("greet") == ("bank", "greet")
    assert [entry.public for entry in found.entries] == ["greet"]
    assert found.ttl_ms == 0
    assert servers.asked.count(("evil", "prompts/list")) == 1
    assert servers.late == []
    servers.answering.set()
    await other_tasks()
    assert servers.late == ["prompts"]
    servers.hung = set()
    assert [entry.public for entry in (await servers.directory.listed(PROMPTS)).entries] == ["greet", "steal"]


async def test_a_server_that_is_always_slow_is_listed_as_it_last_was_and_announced_once() -> None:
    servers = Bank(Limits(list_seconds=0.02), prompts=[{"name": "steal"}])
    servers.hung = {"evil"}
    for _ in range(3):
        found = await servers.directory.listed(PROMPTS)
        servers.answering.set()
        await other_tasks()
        servers.answering.clear()
    assert [entry.public for entry in found.entries] == ["greet", "steal"]
    assert servers.late == ["prompts"]


async def test_a_name_with_a_server_in_it_waits_for_no_other_server() -> None:
    servers = Bank()
    servers.hung = {"evil"}
    async with asyncio.timeout(3):
        assert await servers.directory.prompt("bank__greet") == ("bank", "greet")
        assert (await servers.directory.resource("bank+bank://accounts/1"))[0] == ("bank", "bank://accounts/1")
    assert {server for server, _ in servers.asked} == {"bank"}


async def test_a_list_that_was_asked_for_before_a_change_does_not_replace_the_newer_one() -> None:
    servers = Bank(prompts=[{"name": "old"}])
    servers.capabilities["prompts"] = {"listChanged": True}
    servers.hung = {"evil"}
    before = asyncio.create_task(servers.directory.listed(PROMPTS))
    await until(lambda: ("evil", "prompts/list") in servers.asked)
    servers.hung = set()
    servers.directory.forget("evil", "prompts")
    servers.answers["evil"] = {"prompts/list": {"prompts": [{"name": "new"}]}}
    after = await servers.directory.listed(PROMPTS)
    servers.answers["evil"] = {"prompts/list": {"prompts": [{"name": "old"}]}}
    servers.answering.set()
    await before
    kept = await servers.directory.listed(PROMPTS)
    assert [entry.own for entry in kept.entries] == [entry.own for entry in after.entries] == ["greet", "new"]


async def test_a_server_without_end_is_read_up_to_the_limits() -> None:
    servers = Bank(Limits(listed_items=50))
    asked = 0

    async def endless(_server: str, _method: str, params: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        page = [{"name": f"p{asked}-{number}"} for number in range(20)]
        return {"prompts": page, "nextCursor": "same" if params.get("cursor") else str(asked)}

    servers.answers.pop("bank")
    found = await Directory(servers.states, endless, Limits(listed_items=50)).listed(PROMPTS)
    assert (len(found.entries), asked) == (50, 3)
    asked = 0
    found = await Directory(servers.states, endless).listed(PROMPTS)
    # A repeated cursor ends the list.
    assert (len(found.entries), asked) == (60, 3)


async def test_lists_are_put_together_once_for_as_long_as_they_are_the_same() -> None:
    servers = Bank(prompts=[{"name": f"p{number}"} for number in range(3_000)])
    servers.capabilities["prompts"] = {"listChanged": True}
    first = await servers.directory.listed(PROMPTS)
    assert (await servers.directory.listed(PROMPTS)) is first
    servers.directory.forget("evil", "prompts")
    assert (await servers.directory.listed(PROMPTS)) is not first
