"""`connect` and `disconnect` as a user runs them, in a home of their own. Clients' commands note their words."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import COMMAND, Finished, command

CODEX = '# mine\nmodel = "gpt"\n\n[mcp_servers.docs]\ncommand = "npx"\nenv = { TOKEN = "hunter2-secret" }\n'

FAKE = """#!{python}
import json, os, pathlib, sys
home = pathlib.Path(os.environ["HOME"])
with (home / "noted.jsonl").open("a") as file:
    file.write(json.dumps(sys.argv) + "\\n")
if os.environ.get("FAKE_FAILS"):
    sys.exit(3)
path = home / ".claude.json"
document = json.loads(path.read_text()) if path.exists() else {{}}
servers = document.setdefault("mcpServers", {{}})
words = sys.argv[1:]
if words[:2] == ["mcp", "add-json"]:
    servers[words[4]] = json.loads(words[5])
elif words[:2] == ["mcp", "remove"]:
    del servers[words[4]]
path.write_text(json.dumps(document, indent=2))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    for folder in (".codex", ".cursor", ".claude"):
        (made / folder).mkdir(parents=True)
    (made / ".codex" / "config.toml").write_text(CODEX)
    own = made / ".config" / "mcp-optimizer" / "mcp.json"
    own.parent.mkdir(parents=True)
    own.write_text('{"mcpServers": {}}')
    return made


def fake(home: Path, name: str) -> Path:
    """A client's command on a PATH of its own."""
    folder = home / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(FAKE.format(python=sys.executable))
    (folder / name).chmod(0o755)
    return folder


async def run(home: Path, *words: str, cold: bool = False, path: Path | None = None, **more: str) -> Finished:
    env = {"HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "XDG_CONFIG_HOME": str(home / ".config")}
    env |= {"PATH": str(path or home / "bin"), **more}
    return await command(*words, cwd=home, env=env, cold=cold)


def noted(home: Path) -> list[Any]:
    return [json.loads(line) for line in (home / "noted.jsonl").read_text().splitlines()]


async def test_a_client_is_connected_and_disconnected_byte_for_byte(home: Path) -> None:
    file = home / ".codex" / "config.toml"
    shown = await run(home, "connect", "codex", "--dry-run", cold=True)
    assert shown.code == 0, shown.err
    assert "+[mcp_servers.mcp-optimizer]" in shown.out
    assert "hunter2" not in shown.out + shown.err
    assert "import codex --move" in shown.err
    assert file.read_text() == CODEX
    done = await run(home, "connect", "codex", "--yes")
    assert done.code == 0, done.err
    assert "Connected Codex" in done.out
    assert str(home / ".config" / "mcp-optimizer" / "mcp.json") in file.read_text()
    again = await run(home, "connect", "codex", "--yes")
    assert "already" in again.out
    undone = await run(home, "disconnect", "codex", "--yes", cold=True)
    assert undone.code == 0, undone.err
    assert file.read_text() == CODEX
    kept = [path for path in (home / "data").rglob("*") if path.name.endswith((".before", ".done"))]
    assert len(kept) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}


async def test_a_client_can_be_given_only_some_servers(home: Path) -> None:
    done = await run(home, "connect", "codex", "--servers", "lab", "--yes")
    assert done.code == 0, done.err
    entry = tomllib.loads((home / ".codex" / "config.toml").read_text())["mcp_servers"]["mcp-optimizer"]
    assert entry["args"][-3:] == [str(home / ".config" / "mcp-optimizer" / "mcp.json"), "--servers", "lab"]
    assert "mcp-optimizer-gateway" in entry["command"]


async def test_nothing_is_written_where_nobody_can_be_asked(home: Path) -> None:
    for more in ((), ("--json",)):
        refused = await run(home, "connect", "codex", *more)
        assert refused.code == 2
        assert "--yes" in refused.err
    assert (home / ".codex" / "config.toml").read_text() == CODEX


async def test_the_client_s_own_command_is_used_and_shown(home: Path) -> None:
    bin_folder = fake(home, "claude")
    before = '{"numStartups": 3, "mcpServers": {}}'
    (home / ".claude.json").write_text(before)
    shown = await run(home, "connect", "claude-code", "--dry-run", path=bin_folder)
    assert "$ claude mcp add-json --scope user mcp-optimizer" in shown.out
    assert not (home / "noted.jsonl").exists()
    done = await run(home, "connect", "claude-code", "--yes", path=bin_folder)
    assert done.code == 0, done.err
    (words,) = noted(home)
    assert words[1:6] == ["mcp", "add-json", "--scope", "user", "mcp-optimizer"]
    entry = json.loads(words[6])
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-3:] == ["serve", "--config", str(home / ".config" / "mcp-optimizer" / "mcp.json")]
    await run(home, "disconnect", "claude-code", "--yes", path=bin_folder)
    assert (home / ".claude.json").read_text() == before
    assert len(noted(home)) == 1, "the copy is exact, so the command is not needed"


async def test_the_client_s_command_removes_what_it_added_when_the_file_changed_since(home: Path) -> None:
    bin_folder = fake(home, "claude")
    (home / ".claude.json").write_text("{}")
    await run(home, "connect", "claude-code", "--yes", path=bin_folder)
    document = json.loads((home / ".claude.json").read_text()) | {"numStartups": 4}
    (home / ".claude.json").write_text(json.dumps(document))
    undone = await run(home, "disconnect", "claude-code", "--yes", path=bin_folder)
    assert undone.code == 0, undone.err
    assert noted(home)[-1][1:] == ["mcp", "remove", "--scope", "user", "mcp-optimizer"]
    assert json.loads((home / ".claude.json").read_text()) == {"mcpServers": {}, "numStartups": 4}


async def test_a_command_that_fails_or_writes_nothing_falls_back_to_the_file(home: Path) -> None:
    bin_folder = fake(home, "claude")
    fake(home, "gemini")
    (home / ".gemini").mkdir()
    (home / ".claude.json").write_text("{}")
    failed = await run(home, "connect", "claude-code", "--yes", path=bin_folder, FAKE_FAILS="1")
    assert failed.code == 0, failed.err
    assert "failed with code 3, so the file was edited" in failed.out
    assert "mcp-optimizer" in (home / ".claude.json").read_text()
    silent = await run(home, "connect", "gemini", "--yes", path=bin_folder)
    assert "did not write the entry" in silent.out
    assert noted(home)[-1][1:6] == ["mcp", "add", "--scope", "user", "mcp-optimizer"]
    assert "mcp-optimizer" in (home / ".gemini" / "settings.json").read_text()
    edited = await run(home, "disconnect", "gemini", "--yes", "--file", path=bin_folder)
    assert edited.code == 0, edited.err
    assert not (home / ".gemini" / "settings.json").exists()


async def test_variables_of_the_server_file_are_passed_on_by_name(home: Path) -> None:
    servers = home / "servers.json"
    servers.write_text(
        '{"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "${LAB_TOKEN}", "L": "${env:LEVEL:-2}"}},'
        ' "b": {"url": "https://b.example/mcp", "bearer_token_env_var": "B_TOKEN", "headers": {"H": "${userHome}"}}}}'
    )
    bin_folder = fake(home, "codex")
    fake(home, "gemini")
    for folder in (".gemini", ".qwen", ".vibe"):
        (home / folder).mkdir()
    for client in ("codex", "gemini", "qwen"):
        done = await run(
            home, "connect", client, "--yes", "--config", str(servers), path=bin_folder, LAB_TOKEN="hunter2"
        )
        assert done.code == 0, done.err
        assert "warning: " + client not in done.err
    assert not (home / "noted.jsonl").exists(), "their own commands cannot write it"
    codex = tomllib.loads((home / ".codex" / "config.toml").read_text())["mcp_servers"]["mcp-optimizer"]
    assert codex["env_vars"] == ["B_TOKEN", "LAB_TOKEN", "LEVEL"]
    assert codex["required"] is True
    for file in (".gemini/settings.json", ".qwen/settings.json"):
        text = (home / file).read_text()
        assert json.loads(text)["mcpServers"]["mcp-optimizer"]["env"]["LAB_TOKEN"] == "$LAB_TOKEN"
        assert "hunter2" not in text
    vibe = await run(home, "connect", "vibe", "--yes", "--config", str(servers))
    assert "Mistral Vibe does not pass on variables, and your server file uses B_TOKEN, LAB_TOKEN, LEVEL" in vibe.err


async def test_all_clients_are_connected_though_one_fails(home: Path) -> None:
    (home / ".cursor" / "mcp.json").write_text('{"mcpServers": {oops}}')
    (home / ".claude.json").write_text("{}")
    done = await run(home, "connect", "--all", "--yes", "--json")
    assert done.code == 1
    found = {one["client"]: one for one in done.json["clients"]}
    assert {name: one["status"] for name, one in found.items()} == {
        "claude-code": "connected",
        "cursor": "failed",
        "codex": "connected",
    }
    assert "at line 1, column" in found["cursor"]["note"]
    undone = await run(home, "disconnect", "--all", "--yes")
    assert undone.code == 1
    assert (home / ".codex" / "config.toml").read_text() == CODEX
    assert (home / ".claude.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["connect"], "Name a client"),
        (["connect", "emacs"], "not a known client"),
        (["connect", "zed"], "not installed here"),
        (["connect", "codex", "--name", "a b"], "--name"),
        (["connect", "codex", "--http", "localhost"], "--http needs a URL"),
        (["connect", "codex", "--http", "http://x/mcp", "--key-variable", "abc-secret="], "not the key itself"),
        (["connect", "codex", "--key-variable", "KEY"], "add --http"),
        (["connect", "codex", "--all"], "not both"),
    ],
)
async def test_what_is_wrong_is_said(home: Path, words: list[str], said: str) -> None:
    ended = await run(home, *words, "--yes")
    assert ended.code == 2
    assert said in ended.err
    assert "abc-secret" not in ended.err


@pytest.mark.parametrize(("answer", "is_connected"), [("n\n", False), ("y\n", True)])
async def test_a_person_at_a_terminal_is_asked(home: Path, answer: str, is_connected: bool) -> None:
    ours, theirs = os.openpty()
    env = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "PATH": str(home / "bin")}
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "connect", "codex", cwd=home, env=env, stdin=theirs, stdout=theirs, stderr=asyncio.subprocess.PIPE
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    await asyncio.wait_for(process.communicate(), 60)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "Make this change?" in shown
    assert ("mcp_servers.mcp-optimizer" in (home / ".codex" / "config.toml").read_text()) is is_connected
