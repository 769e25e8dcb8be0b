"""`add`, `remove`, `enable`, `disable` and `registry` as a user runs them: the server file changes, and it works."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pty
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PLAIN_SERVER
from tests.e2e.running import COMMAND, Finished, command
from tests.e2e.test_secret_commands import given, read_until
from tests.servers.registry import RegistryContents, running_registry

VALUE = "planted-7c9e6679f42d"
NAME = "io.github.acme/weather"
STARTER = '{\n  // Mine.\n  "mcpServers": {\n    "old": {"command": "x", "disabled": true} // kept\n  }\n}\n'
PACKAGE = {
    "registryType": "npm",
    "identifier": "@acme/weather",
    "version": "1.4.2",
    "transport": {"type": "stdio"},
    "environmentVariables": [{"name": "WEATHER_KEY", "description": "Of you", "isRequired": True, "isSecret": True}],
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(STARTER)
    return path


@pytest.fixture
def contents() -> Iterator[RegistryContents]:
    with running_registry() as running:
        running.add({"name": NAME, "version": "1.4.2", "description": "Weather\x1b[31m", "packages": [PACKAGE]})
        yield running


async def optimizer(config: Path, *arguments: object, cold: bool = False) -> Finished:
    name, *rest = map(str, arguments)
    at = rest.index("--") if "--" in rest else len(rest)
    options = ["--config", str(config), "--database", str(config.parent / "catalog.db")]
    return await command(name, *rest[:at], *options, *rest[at:], cold=cold)


def entries(config: Path) -> dict[str, Any]:
    text = config.read_text()
    found: dict[str, Any] = json.loads(text.replace("// Mine.", "").replace("// kept", ""))["mcpServers"]
    return found


async def test_a_server_is_added_found_switched_and_removed(config: Path) -> None:
    added = await optimizer(config, "add", "plain", "--", sys.executable, PLAIN_SERVER, "plain", cold=True)
    assert (added.code, added.err) == (0, "")
    assert str(PLAIN_SERVER) in added.out
    assert "It works: " in added.out
    assert "// kept" in config.read_text()
    found = await optimizer(config, "find", "echo", "--json")
    assert "echo" in [tool["name"] for tool in found.json["tools"]]
    off = await optimizer(config, "disable", "plain/echo", cold=True)
    assert off.out.startswith("Disabled plain/echo.")
    found = await optimizer(config, "find", "echo", "--json")
    assert "echo" not in [tool["name"] for tool in found.json["tools"]]
    assert (await optimizer(config, "enable", "plain/echo", "--json", cold=True)).json["changed"]
    assert (await optimizer(config, "disable", "plain")).code == 0
    assert entries(config)["plain"]["disabled"] is True
    assert "It was so already." in (await optimizer(config, "disable", "plain")).out
    refused = await optimizer(config, "remove", "plain")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    removed = await optimizer(config, "remove", "plain", "--yes", cold=True)
    assert removed.out.startswith("Removed plain.\n")
    assert config.read_text() == STARTER


async def test_a_server_that_does_not_start_is_kept_and_explained(config: Path) -> None:
    added = await optimizer(config, "add", "gone", "--json", "--", "/no/such/program")
    assert added.code == 1
    assert added.json["check"]["works"] is False
    assert added.json["check"]["advice"]
    assert "gone" in entries(config)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["old", "--", "x"], "already a server 'old'"),
        (["x", "--", sys.executable, "-m", "mcp_optimizer", "serve", "--config", "CONFIG"], "start itself forever"),
        (["weather"], "is not a source"),
        (["npm:-x@1.0.0"], "not the name of a package"),
        (["https://a.example/mcp", "--env", "A=B"], "use --header"),
        (["x", "--env", "A", "--", "y"], "NAME=VALUE"),
        (["x", "--input", "A=B", "--", "y"], "does not ask for 'A'"),
        (["x", "--name", "a/b", "--", "y"], "cannot be the name"),
        (["old", "--demo", "--", "y"], "config or demo"),
    ],
)
async def test_what_cannot_be_added_changes_nothing(config: Path, arguments: list[str], said: str) -> None:
    done = await optimizer(config, "add", *[str(config) if one == "CONFIG" else one for one in arguments])
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert config.read_text() == STARTER


async def test_the_registry_is_searched_and_shown(config: Path, contents: RegistryContents) -> None:
    found = await optimizer(config, "registry", "search", "weather", "--registry", contents.address, cold=True)
    assert found.out.splitlines() == [f"{NAME} 1.4.2", "  Weather", "1 server"]
    shown = await optimizer(config, "registry", "show", NAME, "--registry", contents.address, "--json", cold=True)
    assert (shown.json["status"], shown.json["packages"]) == ("active", ["npm"])
    missing = await optimizer(config, "registry", "show", "io.github.acme/x", "--registry", contents.address)
    assert (missing.code, "has no server" in missing.err) == (2, True)


async def test_a_server_of_the_registry_is_pinned_and_its_secret_kept(config: Path, contents: RegistryContents) -> None:
    asked = ("add", NAME, "--registry", contents.address)
    dry = await optimizer(config, *asked, "--dry-run", "--json")
    assert dry.json["command"] == ["npx", "-y", "@acme/weather@1.4.2"]
    assert (dry.json["environment"], dry.json["missing"], dry.json["written"]) == (
        ["WEATHER_KEY"],
        ["WEATHER_KEY"],
        False,
    )
    missing = await optimizer(config, *asked, "--yes")
    assert (missing.code, "--secret WEATHER_KEY" in missing.err) == (2, True)
    shown = await optimizer(config, *asked, "--yes", "--env", f"WEATHER_KEY={VALUE}")
    assert shown.code == 2
    assert VALUE not in shown.err + shown.out
    unsure = await optimizer(config, *asked, "--env", "WEATHER_KEY=${HOME}")
    assert (unsure.code, "--yes" in unsure.err) == (2, True)
    assert config.read_text() == STARTER
    options = ("--config", config, "--database", config.parent / "catalog.db", "--yes", "--no-check")
    added = await given(f"{VALUE}\n".encode(), *asked, *options, "--secret", "WEATHER_KEY")
    assert (added.code, added.err) == (0, "")
    assert VALUE not in added.out + config.read_text()
    assert entries(config)["weather"] == {
        "command": "npx",
        "args": ["-y", "@acme/weather@1.4.2"],
        "env": {"WEATHER_KEY": "${secret:weather/WEATHER_KEY}"},
    }
    removed = await optimizer(config, "remove", "weather", "--yes")
    assert "secret delete weather/WEATHER_KEY" in removed.out


async def test_a_deleted_server_is_refused_and_a_deprecated_one_is_named(
    config: Path, contents: RegistryContents
) -> None:
    document = {"version": "1.0.0", "remotes": [{"type": "streamable-http", "url": "https://a.example/mcp"}]}
    contents.add({"name": "io.github.acme/gone", **document}, "deleted", statusMessage="It was malware")
    contents.add({"name": "io.github.acme/older", **document}, "deprecated")
    gone = await optimizer(config, "add", "io.github.acme/gone", "--registry", contents.address, "--yes")
    assert (gone.code, "It was malware" in gone.err) == (2, True)
    older = await optimizer(config, "add", "io.github.acme/older", "--registry", contents.address, "--dry-run")
    assert "deprecated" in older.out


async def test_a_secret_is_asked_for_at_a_terminal_and_never_shown(config: Path, contents: RegistryContents) -> None:
    ours, theirs = pty.openpty()
    arguments = ["add", NAME, "--registry", contents.address, "--no-check", "--config", str(config)]
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        "--database",
        str(config.parent / "catalog.db"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = await asyncio.to_thread(read_until, ours, b"not shown")
    os.write(ours, f"{VALUE}\n".encode())
    seen += await asyncio.to_thread(read_until, ours, b"[y/N]")
    os.write(ours, b"y\n")
    seen += await asyncio.to_thread(read_until, ours, b"Added weather")
    assert await process.wait() == 0
    os.close(ours)
    assert VALUE.encode() not in seen
    assert "weather" in entries(config)


async def test_a_bundle_is_unpacked_and_works(config: Path, contents: RegistryContents, tmp_path: Path) -> None:
    server = {
        "type": "python",
        "entry_point": "server.py",
        "mcp_config": {"command": sys.executable, "args": ["${__dirname}/server.py", "${user_config.name}"]},
    }
    asked = {"name": {"type": "string", "required": True}}
    path = tmp_path / "weather.mcpb"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"name": "weather", "server": server, "user_config": asked}))
        archive.write(PLAIN_SERVER, "server.py")
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    contents.raw["/weather.mcpb"] = (200, {}, content)
    options = ("--yes", "--input", "name=plain")
    refused = await optimizer(config, "add", path, *options)
    assert (refused.code, "--yes-run" in refused.err) == (2, True)
    wrong = await optimizer(config, "add", path, *options, "--yes-run", "--sha256", "0" * 64)
    assert (wrong.code, "not the file that was expected" in wrong.err) == (2, True)
    added = await optimizer(
        config, "add", f"{contents.address}/weather.mcpb", *options, "--yes-run", "--sha256", sha256, "--json"
    )
    assert added.code == 0, added.err
    assert added.json["check"]["works"]
    folder = tmp_path / "xdg_data_home" / "mcp-optimizer" / "bundles" / f"weather-{sha256[:32]}"
    assert entries(config)["weather"]["args"] == [str(folder / "server.py"), "plain"]


async def test_an_entry_says_that_a_server_with_state_in_memory_never_stops(config: Path) -> None:
    command_line = ("--", "npx", "@playwright/mcp@0.0.83")
    shown = await optimizer(config, "add", "web", "--dry-run", "--json", *command_line)
    assert "It never stops when idle, because it holds an open browser." in shown.json["notes"]
    await optimizer(config, "add", "web", "--no-check", *command_line)
    assert entries(config)["web"]["idle_timeout"] == "never"
