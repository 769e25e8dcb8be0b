"""The audit of a real gateway: every act is in the table and in the file, and no argument is in either."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from mcp_optimizer import Optimizer
from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import LEGACY, MODERN, HttpClient, StdioClient, http_client
from tests.e2e.running import WARM, Finished, command, gateway_at, over_stdio, until_found
from tests.waiting import until
from tests.warm import warm_server

CONFORMANT = Path(__file__).parents[1] / "servers" / "conformant.py"
SECRET = "planted-7f3a9c"
pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def lines_of(path: Path) -> list[dict[str, Any]]:
    # What comes after the last line is still being written.
    whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
    return [json.loads(line) for line in whole.splitlines()]


def everything_in(folder: Path) -> bytes:
    """Of the database, what waits to be written to it, and the audit's files."""
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


async def shown(config: Path, database: Path, *options: object) -> list[dict[str, Any]]:
    done = await command("audit", "--config", config, "--database", database, "--json", *options)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


async def test_calls_over_stdio_are_in_the_table_and_the_file_without_their_arguments(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    config = write_servers({"one": plain_server("one")})
    folder = tmp_path / "kept"
    database, file = folder / "catalog.db", folder / "audit.jsonl"
    async with over_stdio(config, "--database", database) as client:
        await until_found(client, "say something back", "echo")
        for _ in range(2):
            await client.call_tool("call_tool", {"tool_name": "echo", "parameters": {"value": SECRET}})
        await client.call_tool("echo", {"value": "registered"})
        await client.call_tool("call_tool", {"tool_name": "fail", "parameters": {"value": SECRET}})
        await client.call_tool("call_tool", {"tool_name": SECRET, "parameters": {"value": SECRET}})
        # While it runs, what is written next to the database is read too.
        await until(lambda: len(lines_of(file)) == 5)
        assert SECRET.encode() not in everything_in(folder)
    found = await shown(config, database)
    assert [(one["method"], one["server"], one["tool"], one["outcome"]) for one in found] == [
        ("tools/call", "one", "echo", "ok"),
        ("tools/call", "one", "echo", "ok"),
        ("tools/call", "one", "echo", "ok"),
        ("tools/call", "one", "fail", "tool error"),
        ("tools/call", "", "", "bad request"),
    ]
    first, again, other, *_ = found
    assert (first["caller"], first["decision"], first["rule"]) == ("local", "allow", "no rule matches")
    assert first["arguments_hash"] == again["arguments_hash"] != other["arguments_hash"]
    assert first["result_hash"] == again["result_hash"] != other["result_hash"]
    assert first["session"] == other["session"]
    assert first["arguments_bytes"] == len(json.dumps({"value": SECRET}, separators=(",", ":")))
    assert first["result_tokens"] > 0
    assert first["milliseconds"] > 0
    assert len(first["definition_hash"]) == 64
    in_file = [{key: one[key] for key in first} for one in lines_of(file)]
    assert in_file == found
    assert SECRET.encode() not in everything_in(folder)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_calls_over_http_have_their_caller_client_and_trace(
    write_servers: WriteServers, tmp_path: Path, era: str
) -> None:
    config, database = write_servers({"one": plain_server("one")}), tmp_path / "catalog.db"
    async with gateway_at(config, "--database", database, "--mode", "transparent") as address:
        async with http_client(address, era) as client:
            await until(lambda: _has_tools(client))
            meta = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
            await client.ask("tools/call", {"name": "echo", "arguments": {"value": SECRET}, "_meta": meta})
        await until(lambda: lines_of(tmp_path / "audit.jsonl"))
    [one] = await shown(config, database)
    assert (one["server"], one["tool"], one["client"], one["trace_id"]) == ("one", "echo", "raw", TRACE)
    assert one["outcome"] == "ok"
    assert SECRET not in json.dumps(lines_of(tmp_path / "audit.jsonl"))


async def _has_tools(client: HttpClient | StdioClient) -> bool:
    answer = await client.ask("tools/list")
    return bool(answer["result"]["tools"])


async def test_prompts_resources_completions_and_subscriptions_are_recorded(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    entry = warm_server(CONFORMANT)
    config, database = write_servers({"all": entry}), tmp_path / "catalog.db"
    async with over_stdio(config, "--database", database, mode="legacy") as client:
        prompts = (await client.list_prompts()).prompts
        prompt = next(one for one in prompts if one.arguments)
        given = {argument.name: SECRET for argument in prompt.arguments or []}
        await client.get_prompt(prompt.name, given)
        argument = {"name": next(iter(given)), "value": SECRET}
        await client.complete(types.PromptReference(name=prompt.name), argument)
        uri = str((await client.list_resources()).resources[0].uri)
        await client.read_resource(uri)
        await client.subscribe_resource(uri)
    found = await shown(config, database)
    assert [(one["method"], one["server"], one["outcome"]) for one in found] == [
        ("prompts/get", "all", "ok"),
        ("completion/complete", "all", "ok"),
        ("resources/read", "all", "ok"),
        ("resources/subscribe", "all", "ok"),
    ]
    assert [one["tool"] for one in found][:3] == [prompt.name, prompt.name, uri]
    assert found[0]["arguments_hash"]
    assert SECRET not in json.dumps(found)


async def test_arguments_are_recorded_only_where_a_setting_says_so(write_servers: WriteServers, tmp_path: Path) -> None:
    config, database = write_servers({"one": plain_server("one")}), tmp_path / "catalog.db"
    options: dict[str, Any] = {"database": str(database), "encoder": "none"}
    async with Optimizer.from_config(config, audit_arguments=True, **options) as optimizer:
        await optimizer.call("echo", {"value": SECRET})
    [one] = await shown(config, database)
    assert json.loads(one["arguments"]) == {"value": SECRET}
    assert SECRET in (tmp_path / "audit.jsonl").read_text()


async def test_nothing_is_written_where_nothing_should_be(write_servers: WriteServers, tmp_path: Path) -> None:
    config = write_servers({"one": plain_server("one")})
    folder = tmp_path / "off"
    async with Optimizer.from_config(config, database=str(folder / "c.db"), encoder="none", audit=False) as optimizer:
        await optimizer.call("echo", {"value": "x"})
    async with Optimizer.from_config(config, database="none", encoder="none") as optimizer:
        await optimizer.call("echo", {"value": "x"})
    assert list(tmp_path.rglob("audit.jsonl*")) == []
    assert await shown(config, folder / "c.db") == []


async def test_while_the_database_is_locked_callers_do_not_wait_and_the_file_has_their_calls(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    config, database = write_servers({"one": plain_server("one")}), tmp_path / "catalog.db"
    async with Optimizer.from_config(config, database=str(database), encoder="none") as optimizer:
        await optimizer.call("echo", {"value": "before"})
        await until(lambda: _count(database) == 1)
        other = sqlite3.connect(database, check_same_thread=False)
        # In a thread, because the gateway needs this event loop to finish what it is writing.
        await asyncio.to_thread(other.execute, "BEGIN EXCLUSIVE")
        async with asyncio.timeout(4):
            # The timeout is shorter than any wait for the lock.
            for _ in range(50):
                await optimizer.call("echo", {"value": "x"})
        await until(lambda: len(lines_of(tmp_path / "audit.jsonl")) == 51)
        other.rollback()
        other.close()
        await until(lambda: _count(database) == 51, timeout=30)


def _count(database: Path) -> int:
    connection = sqlite3.connect(database)
    try:
        return int(connection.execute("SELECT count(*) FROM audit").fetchone()[0])
    finally:
        connection.close()


async def ran(database: Path, *options: object) -> Finished:
    return await command("audit", "--database", database, *options)


async def test_the_command_shows_filters_explains_and_verifies(tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    for name in ("one", "two"):
        process = await asyncio.create_subprocess_exec(
            *WARM, "secret", "set", name, "--database", database,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        await process.communicate(SECRET.encode())
    told = await ran(database)
    assert told.out.count("secret/set") == 2
    assert told.out.endswith("2 entries\n")
    assert (await ran(database, "--tool", "tw*", "--since", "1h")).out.endswith("1 entry\n")
    wrong = {
        ("--since", "yesterday"): "--since 'yesterday' is neither a period",
        ("--until", "soon"): "--until 'soon' is neither a period",
        ("--decision", "maybe"): "none of allow, ask, deny",
        ("--verify", tmp_path / "none"): "There is no audit file",
    }
    refusals = await asyncio.gather(*(ran(database, *options) for options in wrong))
    for refused, expected in zip(refusals, wrong.values(), strict=True):
        assert (refused.code, expected in refused.err) == (2, True), refused.err
    whole = await ran(database, "--verify")
    assert (whole.code, whole.out) == (0, "2 lines of 2 writers in 1 file: nothing is missing or changed.\n")
    file = tmp_path / "audit.jsonl"
    file.write_text(file.read_text().replace('"tool":"one"', '"tool":"two"'))
    changed = await ran(database, "--verify", file, "--json")
    assert (changed.code, len(changed.json["problems"])) == (1, 1)
    assert SECRET.encode() not in everything_in(tmp_path)
