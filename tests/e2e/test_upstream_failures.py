"""Servers that are slow, gone, noisy or enormous, next to healthy ones."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from mcp_optimizer import Optimizer
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CallInterrupted, CallTimeout, UnknownTool
from tests.conftest import Entry, WriteServers, plain_server
from tests.e2e.running import command, over_stdio, said_in, until_found
from tests.waiting import until

GOOD = {f"good{number}": plain_server(f"good{number}", "--tools", 12) for number in range(16)}
BAD: dict[str, Entry] = {
    "never": plain_server("never", "--mode", "hang"),
    "noisy": plain_server("noisy", "--mode", "garbage"),
    "short": plain_server("short", "--mode", "exit"),
    "huge": plain_server("huge", "--tools", 5_000, "--page", 500),
}


async def ready_times(config: Path) -> dict[str, float]:
    """Start a gateway. Returns the seconds until the tool of each good server could be found."""
    started = time.monotonic()
    optimizer = Optimizer.from_config(config, database="none", restart_pause=30.0)
    optimizer.start()
    times: dict[str, float] = {}
    try:
        async with asyncio.timeout(30):
            while len(times) < len(GOOD):
                names = optimizer.snapshot.by_name
                for name in GOOD.keys() - times.keys():
                    if f"{name}_action_0" in names:
                        times[name] = time.monotonic() - started
                await asyncio.sleep(0.01)
    finally:
        await optimizer.stop()
    return times


@pytest.mark.promise("answers-at-once", "missing-servers-named", "bad-server-delays-none")
@pytest.mark.slow
async def test_twenty_servers_of_which_four_are_bad_answer_at_once_and_delay_no_good_one(
    write_servers: WriteServers,
) -> None:
    alone = await ready_times(write_servers(GOOD))
    config = write_servers(BAD | GOOD)
    together = await ready_times(config)
    # Bad servers use the same cores, so some delay is allowed, but not a wait for one of them.
    assert max(together.values()) < max(alone.values()) + 5
    async with over_stdio(config, "--database", "none") as client:
        listed = await client.list_tools()
        # This reply comes at once, without waiting for slow servers.
        first = await client.call_tool("list_tools", {})
        note = said_in(first)["note"]
        assert "Still starting" in note
        assert {"never", "huge"} <= set(re.findall(r"\w+", note))
        assert [tool.name for tool in listed.tools] == ["find_tool", "call_tool", "list_tools", "read_result"]
        for name in GOOD:
            await until_found(client, f"{name} perform action number 1", f"{name}_action_1")
            arguments = {"tool_name": f"{name}_action_1", "parameters": {"id": "x"}}
            result = await client.call_tool("call_tool", arguments)
            assert not result.is_error
        answer = await until_found(client, "huge perform action number 4000", "huge_action_4000")
        assert re.search(r"Still starting, not searched yet: [^.]*\bnever\b", answer["note"])


async def test_doctor_names_each_bad_server_and_why(write_servers: WriteServers) -> None:
    config = write_servers(
        {**BAD, "well": plain_server("well"), "typo": {"command": "npxx"}, "off": {"url": "ftp://x"}}
    )
    done = await command("doctor", "--config", config, "--start-timeout", 8, "--json", cold=True)
    assert done.code == 1
    rows = {row["name"]: row for row in done.json["servers"]}
    assert rows["well"]["status"] == rows["huge"]["status"] == "running"
    assert rows["huge"]["tools"] == 5_000
    assert "did not answer within 8 s" in rows["never"]["reason"]
    assert "Welcome! This is not MCP." in rows["noisy"]["reason"]
    assert "the key is missing" in rows["short"]["reason"]
    assert "exited with code 1" in rows["short"]["reason"]
    assert "'npxx' was not found" in rows["typo"]["reason"]
    assert "http://" in rows["off"]["reason"]
    assert all(rows[name]["advice"] for name in ("never", "noisy", "short", "typo", "off"))


@pytest.mark.promise("independent-servers")
async def test_a_killed_upstream_fails_its_call_at_once_leaves_the_baseline_and_comes_back(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    config = write_servers({"doomed": plain_server("doomed", "--pid-file", pid_file), "other": plain_server("other")})
    async with Optimizer.from_config(config, restart_pause=0.1) as optimizer:
        full = optimizer.snapshot.baseline_tokens
        doomed = asyncio.create_task(optimizer.call("sleep", {"seconds": 30}, "doomed"))
        other = asyncio.create_task(optimizer.call("sleep", {"seconds": 1}, "other"))
        await asyncio.sleep(0.3)
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        with pytest.raises(CallInterrupted, match="'doomed' stopped in the middle of the call"):
            await asyncio.wait_for(doomed, 10)
        assert 0 < optimizer.snapshot.baseline_tokens < full
        assert all(tool.server == "other" for tool in optimizer.snapshot.running)
        assert json.loads((await other)["content"][0]["text"])["server"] == "other"
        await until(lambda: optimizer.snapshot.baseline_tokens == full)
        result = await optimizer.call("echo", {"value": "back"}, "doomed")
        assert json.loads(result["content"][0]["text"])["arguments"] == {"value": "back"}


async def test_a_call_over_its_deadline_ends_with_an_error_and_the_session_goes_on(write_servers: WriteServers) -> None:
    config = write_servers({"slow": {**plain_server("slow"), "timeout": 4}})
    async with Optimizer.from_config(config) as optimizer:
        with pytest.raises(CallTimeout, match="did not answer within 4 s"):
            await optimizer.call("sleep", {"seconds": 30})
        assert not (await optimizer.call("echo", {"value": "still here"})).get("isError")


async def test_many_calls_share_one_session_at_the_same_time(write_servers: WriteServers) -> None:
    async with Optimizer.from_config(write_servers({"one": plain_server("one")})) as optimizer:
        started = time.monotonic()
        results = await asyncio.gather(*(optimizer.call("sleep", {"seconds": 0.5}) for _ in range(20)))
        assert len(results) == 20
        assert time.monotonic() - started < 5


async def test_a_server_that_ends_when_it_is_probed_counts_as_legacy(write_servers: WriteServers) -> None:
    config = write_servers({"old": plain_server("old", "--mode", "dies-when-probed")})
    async with Optimizer.from_config(config) as optimizer:
        [state] = optimizer.servers()
        assert (state.status, state.protocol_version) == (ServerStatus.RUNNING, "2025-11-25")
        assert state.restarts == 0


@pytest.mark.promise("unusable-tools-reported")
async def test_one_invalid_tool_costs_only_itself_and_is_named(write_servers: WriteServers) -> None:
    config = write_servers({"odd": plain_server("odd", "--mode", "one-invalid")})
    async with Optimizer.from_config(config) as optimizer:
        [state] = optimizer.servers()
        assert len(optimizer.snapshot.running) == 9
        [left_out] = state.listing.left_out
        assert (left_out.name, "inputSchema" in left_out.reason) == ("broken", True)
        with pytest.raises(UnknownTool):
            await optimizer.call("broken")


async def test_tools_that_appear_later_are_found_without_a_restart(write_servers: WriteServers) -> None:
    async with Optimizer.from_config(write_servers({"one": plain_server("one")})) as optimizer:
        await optimizer.call("grow")
        await until(lambda: "grown" in optimizer.snapshot.by_name)
        found = await optimizer.find("a tool that appeared later")
        assert found.tools[0].name == "grown"


@pytest.mark.promise("child-environment")
async def test_a_child_gets_only_the_environment_configured_for_it(
    write_servers: WriteServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_SECRET_TOKEN", "hunter2")
    entry = {**plain_server("one"), "env": {"CONFIGURED": "yes"}}
    async with Optimizer.from_config(write_servers({"one": entry})) as optimizer:
        result = await optimizer.call("environment")
    names = set(json.loads(result["content"][0]["text"]))
    assert "CONFIGURED" in names
    assert "PATH" in names
    assert "OUR_SECRET_TOKEN" not in names


@pytest.mark.promise("no-server-outlives")
async def test_stopping_leaves_no_child_behind(write_servers: WriteServers, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    config = write_servers({"one": plain_server("one", "--pid-file", pid_file)})
    async with Optimizer.from_config(config):
        pid = int(pid_file.read_text())
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
