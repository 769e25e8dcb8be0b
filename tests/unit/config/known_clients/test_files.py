"""Where clients keep their files, on each system."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_optimizer.config.clients.files import found_files
from mcp_optimizer.config.known_clients.program import ClientProgram
from mcp_optimizer.config.known_clients.table import CLIENTS
from tests.unit.config.clients.golden import made_machine

HOME = Path("/home/ada")


def main_file(client: str, platform: str = "linux", **environment: str) -> str:
    return str(CLIENTS[client].files(HOME, environment, platform)[0].path)


@pytest.mark.parametrize(
    ("client", "platform", "path"),
    [
        ("claude-desktop", "linux", "/home/ada/.config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "darwin", "/home/ada/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", "/home/ada/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("vscode", "darwin", "/home/ada/Library/Application Support/Code/User/mcp.json"),
        ("zed", "darwin", "/home/ada/.config/zed/settings.json"),
        ("zed", "win32", "/home/ada/AppData/Roaming/Zed/settings.json"),
        ("goose", "win32", "/home/ada/AppData/Roaming/Block/goose/config/config.yaml"),
        ("opencode", "win32", "/home/ada/.config/opencode/opencode.json"),
    ],
)
def test_each_system_has_its_folders(client: str, platform: str, path: str) -> None:
    assert main_file(client, platform) == path


def test_the_environment_may_name_other_folders() -> None:
    assert main_file("claude-code", CLAUDE_CONFIG_DIR="/srv/claude") == "/srv/claude/.claude.json"
    assert main_file("codex", CODEX_HOME="~/codex") == "/home/ada/codex/config.toml"
    assert main_file("opencode", OPENCODE_CONFIG="/srv/oc.json") == "/srv/oc.json"
    assert main_file("zed", XDG_CONFIG_HOME="/srv/config") == "/srv/config/zed/settings.json"
    assert main_file("claude-desktop", "win32", APPDATA="/srv/data") == "/srv/data/Claude/claude_desktop_config.json"
    assert main_file("codex", CODEX_HOME="") == "/home/ada/.codex/config.toml"


@pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
def test_a_client_is_installed_where_its_folder_is(client: ClientProgram) -> None:
    assert client.folders(HOME, {}, "linux")[0] not in (HOME, HOME / ".config")


def test_only_files_that_exist_are_found_and_each_once(tmp_path: Path) -> None:
    machine = made_machine(tmp_path, "cursor")
    at_home = machine.home
    found = found_files(machine)
    assert [file.place.path.name for file in found] == ["mcp.json", "mcp.json"]
    assert [file.place.project for file in found] == [None, machine.folder]
    in_home = type(machine)(at_home, machine.environment, machine.platform, at_home)
    assert [file.place.project for file in found_files(in_home)] == [None]
