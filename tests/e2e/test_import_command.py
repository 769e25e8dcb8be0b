"""`import` as a user runs it, in a home with the files of clients."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import parsed
from tests.conftest import plain_server
from tests.e2e.running import Finished, command

GOLDEN = Path(__file__).parents[1] / "golden" / "clients"
VALUE = "planted-5d41402abc4b"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and in it a project."""
    made = tmp_path / "home"
    (made / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.delenv("XDG_CONFIG_HOME")
    return made


async def imported(home: Path, *arguments: object, cold: bool = False) -> Finished:
    database = ("--database", home / "catalog.db")
    return await command("import", *arguments, *database, cwd=home / "project", cold=cold)


def write_cursor(home: Path, **servers: Any) -> Path:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}, indent=2))
    return path


def own_file(home: Path) -> Path:
    path = home / ".config" / "mcp-optimizer" / "mcp.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def written(home: Path) -> Any:
    return json.loads((home / ".config" / "mcp-optimizer" / "mcp.json").read_text())["mcpServers"]


async def test_servers_of_all_clients_are_taken_over_into_a_new_private_file(home: Path) -> None:
    for client in ("cursor", "codex", "goose", "zed", "claude-desktop"):
        shutil.copytree(GOLDEN / client / "home", home, dirs_exist_ok=True)
    done = await imported(home, cold=True)
    assert (done.code, done.err) == (0, "")
    assert {"filesystem", "home", "docs", "older", "github", "github-goose"} <= written(home).keys()
    assert "ghp_0123456789" not in done.out
    assert "github.GITHUB_TOKEN" in done.out
    assert "--store-secrets" in done.out
    assert max(map(len, done.out.splitlines()[:3])) < 200
    file = home / ".config" / "mcp-optimizer" / "mcp.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = await imported(home)
    assert "Nothing to add." in again.out


async def test_a_dry_run_shows_everything_and_writes_nothing(home: Path) -> None:
    path = write_cursor(
        home, a={"command": "x", "env": {"TOKEN": VALUE}, "fancy": 1}, b={"command": "y", "disabled": 1}
    )
    before = path.read_bytes()
    done = await imported(home, "--dry-run", "--move", "--store-secrets")
    assert done.code == 0
    assert "Would add 1 server" in done.out
    assert "not understood, and left out: 'fancy'" in done.out
    assert "switched off" in done.out
    assert VALUE not in done.out
    assert path.read_bytes() == before
    assert not (home / ".config").exists()
    assert not (home / "catalog.db").exists()


async def test_servers_are_added_to_a_file_whose_comments_stay(home: Path) -> None:
    write_cursor(home, new={"command": "x"})
    ours = own_file(home)
    ours.write_text('{\n  // mine\n  "mcpServers": {\n    "old": { "command": "y" } // good\n  }\n}\n')
    done = await imported(home, "cursor", "--json")
    assert done.json["written"] is True
    assert [(one["name"], one["outcome"]) for one in done.json["servers"]] == [("new", "taken")]
    text = ours.read_text()
    assert text.startswith('{\n  // mine\n  "mcpServers": {\n    "old": { "command": "y" }')
    assert "// good" in text
    assert '"new"' in text


async def test_stored_secrets_are_references_and_the_server_gets_their_values(home: Path) -> None:
    write_cursor(home, plain=plain_server("plain") | {"env": {"API_TOKEN": VALUE}})
    done = await imported(home, "--store-secrets")
    assert done.code == 0
    assert written(home)["plain"]["env"] == {"API_TOKEN": "${secret:plain.API_TOKEN}"}
    assert VALUE not in done.out + done.err + (home / ".config" / "mcp-optimizer" / "mcp.json").read_text()
    seen = await command("doctor", "--json", "--database", home / "catalog.db", cwd=home / "project")
    assert seen.code == 0, seen.out
    again = await imported(home, "--store-secrets")
    assert "it is there already" in again.out
    write_cursor(home, plain=plain_server("other") | {"env": {"API_TOKEN": VALUE[::-1]}})
    await imported(home, "--store-secrets")
    assert written(home)["plain-cursor"]["env"] == {"API_TOKEN": "${secret:plain-cursor.API_TOKEN}"}


async def test_moved_servers_are_no_longer_in_the_client(home: Path) -> None:
    path = write_cursor(home, a={"command": "x"}, b={"command": "y", "env": {"K": "${workspaceFolder}"}})
    before = path.read_bytes()
    done = await imported(home, "cursor", "--move", "--yes")
    assert done.code == 0
    assert "Removed from Cursor's file: a." in done.out
    assert json.loads(path.read_text())["mcpServers"].keys() == {"b"}
    [copy] = (home / "clients").glob("*.before")
    assert copy.read_bytes() == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    codex = home / ".codex" / "config.toml"
    codex.parent.mkdir()
    codex.write_text('# mine\n[mcp_servers.c]\ncommand = "z" # good\n')
    await imported(home, "codex", "--move", "--yes")
    assert codex.read_text() == '# mine\n[mcp_servers.c]\ncommand = "z" # good\nenabled = false\n'
    assert written(home).keys() == {"a", "c"}


async def test_a_file_that_cannot_be_changed_is_named_and_does_not_stop_the_others(home: Path) -> None:
    path = write_cursor(home, a={"command": "x"})
    shutil.copytree(GOLDEN / "continue" / "home", home, dirs_exist_ok=True)
    done = await imported(home, "--move", "--yes")
    assert done.code == 1
    assert f"{home}/.continue/config.json was not changed" in done.out
    assert json.loads(path.read_text())["mcpServers"] == {}
    assert {"a", "SQLite", "server-1"} <= written(home).keys()


async def test_only_named_servers_are_taken(home: Path) -> None:
    write_cursor(home, a={"command": "x"}, b={"command": "y"})
    await imported(home, "cursor", "--servers", "b")
    assert written(home).keys() == {"b"}
    missing = await imported(home, "cursor", "--servers", "b,c")
    assert (missing.code, missing.out) == (2, "")
    assert "no server 'c'" in missing.err


async def test_a_file_is_imported_from_wherever_it_is(home: Path) -> None:
    file = home / "copy.toml"
    shutil.copy(GOLDEN / "codex" / "home" / ".codex" / "config.toml", file)
    refused = await command("doctor", "--config", file, cwd=home)
    assert refused.code == 2
    assert "is a Codex file (TOML)" in refused.err
    assert f"`mcp-optimizer import {file}`" in refused.err
    assert (await imported(home, file)).code == 0
    assert written(home).keys() == {"docs", "figma"}


async def test_wrong_uses_say_what_is_wrong_and_write_nothing(home: Path) -> None:
    (home / "broken.json").write_text('{"mcpServers": {')
    (home / "twice.json").write_text('{"mcpServers": {"a": {}, "a": {}}}')
    for arguments, said in (
        (["nonsense"], "neither a file nor a client. Clients: claude-desktop"),
        (["zed"], "Zed has no file with servers here. Looked for"),
        ([home / "broken.json"], "line 1, column"),
        ([home / "twice.json"], "mcpServers.a (lines 1, 1)"),
        ([home], "Is a directory"),
        (["--demo"], "leave out --demo"),
    ):
        done = await imported(home, *arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert said in done.err
        assert "Traceback" not in done.err
    assert not (home / ".config").exists()
    nothing = await imported(home)
    assert (nothing.code, "No files of known clients" in nothing.out) == (0, True)


async def test_a_server_file_that_is_broken_is_not_written(home: Path) -> None:
    write_cursor(home, a={"command": "x"})
    ours = own_file(home)
    for text in ('{"mcpServers": {', "[]", '{"mcpServers": []}', "\udcff"):
        ours.write_bytes(os.fsencode(text))
        done = await imported(home, "--move", "--yes")
        assert (done.code, done.out) == (2, "")
        assert ours.read_bytes() == os.fsencode(text)
    assert "command" in (home / ".cursor" / "mcp.json").read_text()


async def test_names_cannot_control_the_terminal(home: Path) -> None:
    write_cursor(home, **{"\x1b[31mred": {"command": "x"}, "ok": {"command": "y", "\x1b]0;title\x07": 1}})
    done = await imported(home)
    assert "\x1b" not in done.out
    assert written(home).keys() == {"ok"}


async def test_what_a_cloned_folder_brings_is_shown_and_taken_only_by_name(home: Path) -> None:
    write_cursor(home, mine={"command": "true"})
    file = home / "project" / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"theirs": {"command": "sh", "args": ["-c", "id"]}}}))
    done = await imported(home, "--move", "--yes")
    assert "theirs" in done.out
    assert list(written(home)) == ["mine"]
    assert "theirs" in file.read_text()
    await imported(home, "claude-code")
    assert list(written(home)) == ["mine"]
    await imported(home, ".mcp.json")
    assert list(written(home)) == ["mine", "theirs"]


async def test_a_link_out_of_the_folder_is_not_switched_off(home: Path) -> None:
    victim = write_cursor(home, mine={"command": "true"})
    before = victim.read_bytes()
    (home / "project" / ".mcp.json").symlink_to(victim)
    done = await imported(home, ".mcp.json", "--move", "--yes")
    assert (done.code, victim.read_bytes()) == (1, before)
    assert "leads out" in done.out


async def test_values_that_nobody_calls_secret_are_kept_from_others_too(home: Path) -> None:
    write_cursor(home, mine={"command": "true", "env": {"DATABASE": "plain"}})
    ours = own_file(home)
    ours.write_text('{"mcpServers": {}}')
    ours.chmod(0o644)
    await imported(home)
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600


CLAUDE: dict[str, Any] = {
    "mcpServers": {
        "lab": {"type": "stdio", "command": "lab-mcp", "args": []},
        "git": {"type": "stdio", "command": "git-mcp"},
    },
    "numStartups": 3,
}


def write_claude(home: Path) -> Path:
    path = home / ".claude.json"
    path.write_text(json.dumps(CLAUDE, indent=1))
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_text(
        json.dumps(
            {
                "permissions": {
                    "deny": ["mcp__lab__delete_everything", "Bash(rm:*)", "mcp__other__x"],
                    "ask": ["mcp__git"],
                    "allow": ["mcp__lab__get_rows"],
                }
            }
        )
    )
    return path


async def test_what_claude_code_denied_is_denied_by_rules_before_anything_moves(home: Path) -> None:
    write_claude(home)
    settings = own_file(home).with_name("settings.toml")
    settings.write_text('detail = "full" # mine\n\n[[rules]]\neffect = "allow"\nserver = "lab"\n')
    done = await imported(home, "claude-code", "--move", "--yes")
    assert done.code == 0, done.err
    text = settings.read_text()
    assert text.startswith('detail = "full" # mine\n')
    rules = tomllib.loads(text)["rules"]
    assert [(rule["effect"], rule["server"], rule.get("tool")) for rule in rules] == [
        ("deny", "lab", "delete?everything"),
        ("allow", "lab", None),
        ("ask", "git", None),
    ]
    assert "deny lab/delete?everything" in done.out
    assert "Not carried over: Claude Code called 1 kind of tools without asking" in done.out
    again = await imported(home, "claude-code", "--dry-run", "--json")
    assert json.loads(again.out)["rules"] == []


async def test_rules_that_cannot_be_written_stop_the_import(home: Path) -> None:
    path = write_claude(home)
    settings = own_file(home).with_name("settings.toml")
    settings.write_text("rules = [ # mine\n]\n")
    done = await imported(home, "claude-code", "--move", "--yes")
    assert done.code != 0
    assert "Nothing was taken over" in done.err
    assert json.loads(path.read_text()) == CLAUDE
    assert not own_file(home).exists()


async def test_a_move_is_shown_and_needs_a_yes(home: Path) -> None:
    path = write_claude(home)
    done = await imported(home, "claude-code", "--move")
    assert done.code != 0
    assert "Repeat it with --yes" in done.err
    assert '-  "lab": {' in done.out
    assert json.loads(path.read_text()) == CLAUDE
    assert not own_file(home).exists()


async def restored(home: Path, *words: str) -> Finished:
    database = ("--database", home / "catalog.db")
    return await command("disconnect", *words, "--restore", "--yes", *database, cwd=home / "project")


async def connected(home: Path, client: str) -> None:
    done = await command("connect", client, "--yes", "--file", "--database", home / "catalog.db", cwd=home / "project")
    assert done.code == 0, done.err


@pytest.mark.parametrize("connects_first", [True, False])
async def test_what_moved_comes_back_with_every_byte(home: Path, connects_first: bool) -> None:
    path = write_claude(home)
    before = path.read_bytes()
    if connects_first:
        await connected(home, "claude-code")
    done = await imported(home, "claude-code", "--move", "--yes")
    assert "Removed from Claude Code's file: lab, git. To put back: mcp-optimizer disconnect claude" in done.out
    if not connects_first:
        await connected(home, "claude-code")
    assert set(json.loads(path.read_text())["mcpServers"]) == {"mcp-optimizer"}
    back = await restored(home, "claude-code")
    assert back.code == 0, back.err
    assert path.read_bytes() == before
    again = await restored(home, "claude-code")
    assert again.code == 0, again.err
    assert path.read_bytes() == before


async def test_in_a_file_that_changed_what_moved_comes_back_one_by_one(home: Path) -> None:
    path = write_claude(home)
    await imported(home, "claude-code", "--move", "--yes")
    await connected(home, "claude-code")
    document = json.loads(path.read_text()) | {"numStartups": 4}
    document["mcpServers"]["git"] = {"command": "newer"}
    path.write_text(json.dumps(document))
    back = await restored(home, "claude-code")
    assert back.code == 0, back.err
    assert "one by one, because the file was changed meanwhile: lab." in back.out
    servers = {"git": {"command": "newer"}, "lab": CLAUDE["mcpServers"]["lab"]}
    assert json.loads(path.read_text()) == {"mcpServers": servers, "numStartups": 4}


@pytest.mark.parametrize("client", ["codex", "gemini", "qwen", "windsurf", "vibe", "continue", "kimi"])
async def test_every_kind_of_switch_is_turned_back(client: str, home: Path) -> None:
    shutil.copytree(GOLDEN / client / "home", home, dirs_exist_ok=True)
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file() and path.name != "config.json"}
    await imported(home, client, "--move", "--yes")
    (path,) = [path for path, content in files.items() if path.read_bytes() != content]
    moved = path.read_bytes()
    back = await restored(home, client)
    assert back.code == 0, back.err
    assert path.read_bytes() == files[path]
    # And by itself, in a file that somebody changed.
    await imported(home, client, "--move", "--yes")
    assert path.read_bytes() == moved
    path.write_bytes(moved + (b"\n# later\n" if path.suffix in (".toml", ".yaml") else b"\n\n"))
    back = await restored(home, client)
    assert back.code == 0, back.err
    assert "one by one" in back.out
    kind = {".toml": FileKind.TOML, ".yaml": FileKind.YAML}.get(path.suffix, FileKind.JSON)
    now, before = (parsed(text.decode(), kind) for text in (path.read_bytes(), files[path]))
    if client == "continue":
        now["mcpServers"].sort(key=str)
        before["mcpServers"].sort(key=str)
    if client == "vibe":
        now["mcp_servers"].sort(key=str)
        before["mcp_servers"].sort(key=str)
    assert now == before
