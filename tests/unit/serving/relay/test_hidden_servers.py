"""Servers that do not exist for a caller: no error, delay or lifetime of theirs reaches it; only names know of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ServerUnavailable
from mcp_optimizer.serving.relay.directory import Directory
from mcp_optimizer.serving.relay.listings import PROMPTS, TEMPLATES
from mcp_optimizer.upstream.state import UpstreamState

CAPABILITIES: dict[str, Any] = {"prompts": {}, "resources": {}}


class Two:
    """The servers `notes` and `payroll`, of which the caller may use `notes`; `payroll` responds as told."""

    def __init__(self, **payroll: Any) -> None:
        self.is_failing = bool(payroll.pop("is_failing", False))
        self.is_slow = bool(payroll.pop("is_slow", False))
        self.never = asyncio.Event()
        self.answers = {
            "notes": {"prompts": [{"name": "sum"}], "ttlMs": 9_000, "cacheScope": "public"},
            "payroll": {"prompts": [{"name": "sum"}], "ttlMs": 5, "cacheScope": "public", **payroll},
        }
        self.directory = Directory(self.states, self.call)

    def states(self) -> dict[str, UpstreamState]:
        return {
            name: UpstreamState(ServerSpec(name, Transport.STDIO), ServerStatus.RUNNING, capabilities=CAPABILITIES)
            for name in self.answers
        }

    async def call(self, server: str, _method: str, _params: dict[str, Any]) -> dict[str, Any]:
        if server == "payroll" and self.is_slow:
            await self.never.wait()
        if server == "payroll" and self.is_failing:
            raise ServerUnavailable(server, "the ledger at prod-7 is down")
        return dict(self.answers[server])


def only_notes(server: str) -> bool:
    return server == "notes"


def nothing(_server: str) -> bool:
    return False


async def test_names_are_the_same_for_everybody_and_entries_are_not() -> None:
    directory = Two().directory
    assert [entry.public for entry in (await directory.listed(PROMPTS, only_notes)).entries] == ["notes__sum"]
    everything = (await directory.listed(PROMPTS)).entries
    assert [entry.public for entry in everything] == ["notes__sum", "payroll__sum"]


async def test_how_long_a_list_lasts_is_said_by_the_callers_servers() -> None:
    found = await Two().directory.listed(PROMPTS, only_notes)
    assert (found.ttl_ms, found.scope) == (9_000, "private")


async def test_an_error_of_a_hidden_server_is_nobodys_error() -> None:
    two = Two(is_failing=True)
    assert (await two.directory.listed(PROMPTS, nothing)).entries == ()
    assert await two.directory.prompt("other", nothing) is None
    assert await two.directory.template("x://{a}", nothing) is None
    del two.answers["notes"]
    assert (await two.directory.listed(PROMPTS, only_notes)).entries == ()
    with pytest.raises(ServerUnavailable):
        await two.directory.listed(PROMPTS)


async def test_an_error_of_the_callers_only_server_is_its_own_whatever_hidden_ones_say() -> None:
    two = Two(is_failing=True)
    with pytest.raises(ServerUnavailable, match="prod-7"):
        await two.directory.listed(PROMPTS, lambda server: server == "payroll")


async def test_nobody_waits_for_a_hidden_server() -> None:
    two = Two(is_slow=True)
    began = time.monotonic()
    found = await two.directory.listed(PROMPTS, only_notes)
    assert ([entry.public for entry in found.entries], found.ttl_ms) == (["sum"], 9_000)
    assert await two.directory.prompt("sum", only_notes) == ("notes", "sum")
    assert (await two.directory.listed(TEMPLATES, only_notes)).entries == ()
    assert await two.directory.resource("x://1", only_notes) == [("notes", "x://1")]
    assert time.monotonic() - began < 2
    two.never.set()


@pytest.mark.parametrize("uri", ["doc://both/1", "doc://hidden/1", "doc://hidden/2", "any:thing", "x://unknown/1"])
async def test_where_a_uri_is_read_does_not_depend_on_hidden_servers(uri: str) -> None:
    two = Two(
        resources=[{"uri": "doc://both/1", "name": "b"}, {"uri": "doc://hidden/1", "name": "h"}],
        resourceTemplates=[{"uriTemplate": "any:{+rest}", "name": "any"}],
    )
    two.answers["notes"]["resources"] = [{"uri": "doc://both/1", "name": "b"}]
    assert await two.directory.resource(uri, only_notes) == [("notes", uri)]
    del two.answers["payroll"]
    assert await two.directory.resource(uri, only_notes) == [("notes", uri)]
