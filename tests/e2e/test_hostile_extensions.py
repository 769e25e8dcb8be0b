"""Servers and clients that misuse extensions: pages of others, tasks without end, tools that only pages may call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import WriteServers
from tests.e2e.extended import APPS, TASKS, called, declaring, entry, extended_gateway, listed, text_of
from tests.e2e.raw_clients import MODERN, http_client
from tests.waiting import until


@pytest.mark.parametrize("claimed", ["ui://one+clock/page.html", "ui://clock/page.html", "ui://ONE+clock/page.html"])
async def test_a_server_that_names_another_ones_page_gets_a_page_of_its_own(
    write_servers: WriteServers, claimed: str
) -> None:
    config = write_servers({"one": entry("one"), "thief": entry("thief", "--page", claimed)})
    async with extended_gateway(config, "--database", "none") as at, http_client(at, MODERN) as client:

        async def are_listed() -> bool:
            return {"one__show_clock", "thief__show_clock"} <= (await listed(client, declaring(APPS))).keys()

        await until(are_listed, timeout=30)
        shown = await listed(client, declaring(APPS))
        named = shown["thief__show_clock"]["_meta"]["ui"]["resourceUri"]
        assert named == f"ui://thief+{claimed.removeprefix('ui://')}"
        result = await called(client, "call_tool", tool_name="thief__show_clock", parameters={})
        assert result["_meta"]["ui"]["resourceUri"] == named
        for uri, owner in (("ui://one+clock/page.html", "one"), (named, "thief")):
            [content] = (await client.ask("resources/read", {"uri": uri}))["result"]["contents"]
            assert f"clock of {owner}</title>" in content["text"], uri


async def test_a_script_cannot_call_a_tool_that_only_pages_may_call(write_servers: WriteServers) -> None:
    config = write_servers({"one": entry("one")})
    options = ("--database", "none", "--scripts", "write")
    async with extended_gateway(config, *options) as at, http_client(at, MODERN) as client:
        for script in ("return one.tick()", 'return tools["one__tick"]()', 'return getattr(one, "tick")()'):
            refused = await called(client, "run_script", script=script, may_change=["tick"])
            assert refused["isError"], script
            assert "ticked" not in json.dumps(refused)


async def test_a_list_of_calls_does_not_reach_a_tool_that_only_pages_may_call(write_servers: WriteServers) -> None:
    config = write_servers({"one": entry("one")})
    async with extended_gateway(config, "--database", "none") as at, http_client(at, MODERN) as client:
        for name in ("tick", "one__tick"):
            refused = await called(client, "call_tool", declaring(APPS), tool_name=name, parameters=[{}, {}])
            assert refused["isError"]
            assert "ticked" not in json.dumps(refused)


async def test_a_task_that_never_ends_is_cancelled_when_its_call_has_no_time_left(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    settings, state = tmp_path / "settings.toml", tmp_path / "tasks.json"
    settings.write_text("[limits]\ncall_seconds = 2\n")
    config = write_servers({"one": entry("one", "--state", str(state))})
    options = ("--database", "none", "--settings", settings)
    async with extended_gateway(config, *options) as at, http_client(at, MODERN) as client:
        result = await called(client, "call_tool", tool_name="endless", parameters={})
        assert result["isError"]
        assert "did not end within 2 s and was cancelled" in text_of(result)

        def is_cancelled() -> bool:
            return [task["status"] for task in json.loads(state.read_text()).values()] == ["cancelled"]

        await until(is_cancelled, timeout=20)


async def test_a_caller_that_wants_endless_tasks_has_a_few_and_others_are_answered(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[limits]\ntasks = 5\ncall_seconds = 1\n")
    config = write_servers({"one": entry("one")})
    options = ("--database", tmp_path / "catalog.db", "--settings", settings)
    async with extended_gateway(config, *options) as at, http_client(at, MODERN) as client:
        made = [
            await called(client, "call_tool", declaring(TASKS), tool_name="endless", parameters={}) for _ in range(7)
        ]
        assert [one["resultType"] for one in made] == ["task"] * 5 + ["complete"] * 2
        hello = await called(client, "call_tool", tool_name="greet", parameters={"name": "you"})
        assert text_of(hello) == "Hello, you!"
