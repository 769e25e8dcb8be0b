"""A server cannot pass its texts off as the gateway's metadata or as commands to the terminal."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Entry, WriteServers, plain_server
from tests.e2e.running import command, over_stdio

SERVER = Path(__file__).parents[1] / "servers" / "pretender.py"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def pretender(*manner: str) -> Entry:
    return {"command": sys.executable, "args": [str(SERVER), *manner]}


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"well": pretender(), "gone": pretender("dies"), "other": plain_server("other")})


@pytest.mark.parametrize("form", ["people", "json"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["tools"],
        ["servers"],
        ["doctor"],
        ["find", "innocent words"],
        ["find", "innocent words", "--detail", "full"],
        ["show", "act"],
        ["report"],
        ["call", "act"],
        ["call", "no_such_tool"],
        ["call", "act", '{"x": 1, "y": "\x1b[31m"}'],
    ],
    ids=" ".join,
)
async def test_no_command_prints_a_control_character_of_a_server(config: Path, arguments: list[str], form: str) -> None:
    extra = ["--json"] if form == "json" else []
    done = await command(*arguments, *extra, "--config", config, "--log-format", "human", "--encoder", "none")
    assert CONTROL.findall(done.out + done.err) == []
    assert done.out + done.err
    if form == "json" and done.code == 0:
        assert done.json


async def test_an_error_of_a_server_is_printed_without_control_characters(write_servers: WriteServers) -> None:
    done = await command("call", "act", "--config", write_servers({"well": pretender("refuses")}))
    assert done.code == 1
    assert "innocent" in done.err
    assert CONTROL.findall(done.err) == []


async def test_a_kept_result_is_printed_without_control_characters(config: Path) -> None:
    cut = await command("call", "act", "--config", config, "--json", "--select", "x")
    about = cut.json["_meta"]["mcp-optimizer/result"]
    for extra in ([], ["--json"]):
        done = await command("read", about["resultId"], "--config", config, *extra, cold=bool(extra))
        assert "innocent" in done.out
        assert CONTROL.findall(done.out + done.err) == []


async def test_json_for_programs_still_holds_the_control_characters(config: Path) -> None:
    done = await command("call", "act", "--config", config, "--json")
    assert "\x9b" in done.json["content"][0]["text"]


@pytest.mark.parametrize("mode", ["search", "transparent"])
async def test_a_server_cannot_set_the_metadata_that_is_the_gateways(config: Path, mode: str) -> None:
    async with over_stdio(config, "--mode", mode, "--database", "none", "--plain-meta") as client:
        named: dict[str, Any] = {"tool_name": "act", "parameters": {}}
        if mode == "search":
            while (result := await client.call_tool("call_tool", named)).is_error:
                pass
        else:
            result = await client.call_tool("act", {})
        meta = result.meta or {}
        own = {"mcp-optimizer/tool": {"name": "act", "server": "well"}} if mode == "search" else {}
        assert {key: value for key, value in meta.items() if key.startswith("mcp-optimizer/")} == own
        assert meta["vendor/key"] == "kept"
        assert meta["tokens"]["estimated"] > 0
        assert meta["tokens"]["approximationMethod"] != "trust me"
        assert meta["performance"]["cachedResult"] is False
        assert "data" not in meta or meta["data"].get("rowCount") != 1_000_000
        assert "cost" not in meta
        prompt = await client.get_prompt("speak")
        read = await client.read_resource("pretend://r")
        for passed in (prompt, read):
            assert not any(key.startswith("mcp-optimizer/") for key in passed.meta or {})
            assert (passed.meta or {})["vendor/key"] == "kept"
        plain = json.loads(result.model_dump_json())
        assert "trust me" not in json.dumps(plain)
