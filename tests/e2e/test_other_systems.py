"""Where the system is not Linux: nothing rests on what only Linux has. `scripts/other_systems.py` reads the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import WriteServers
from tests.e2e.raw_clients import stdio_client
from tests.e2e.running import COMMAND, command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pretends to be macOS, which needs a Unix")

COUNTING = Path(__file__).parents[1] / "servers" / "counting.py"
DARWIN = Path(__file__).parents[1] / "darwin"


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Processes believe that they run on macOS, in this empty home."""
    monkeypatch.setenv("PYTHONPATH", str(DARWIN))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("way", [[], ["--shared"]], ids=["alone", "shared"])
async def test_on_macos_a_client_finds_and_calls_and_commands_reach_the_gateway(
    write_servers: WriteServers, macos: Path, tmp_path: Path, way: list[str]
) -> None:
    notes = tmp_path / "notes"
    config = write_servers({"counting": {"command": sys.executable, "args": ["-I", "-S", str(COUNTING), str(notes)]}})
    async with stdio_client(config, "--encoder", "none", *way, program=COMMAND) as client:
        given: dict[str, object] = {"tool_description": "take a note"}
        while "note" not in str(found := await client.ask("tools/call", {"name": "find_tool", "arguments": given})):
            assert "Still starting" in str(found)
        given = {"tool_name": "note", "parameters": {"text": "a"}}
        called = await client.ask("tools/call", {"name": "call_tool", "arguments": given})
        assert not called["result"].get("isError"), called
        status = await command("status", "--config", config, "--json", cold=True)
        assert status.code == 0, status.err
        assert status.json["gateways"], status.json
    assert list((macos / "Library").rglob("*.db")), "its files are where macOS keeps such"


async def test_on_macos_a_service_is_launchds_and_clients_are_found_in_their_folders_there(macos: Path) -> None:
    made = await command("init", cold=True)
    assert made.code == 0, made.err
    planned = await command("service", "install", "--dry-run", cold=True)
    assert planned.code == 0, planned.err
    assert "Library/LaunchAgents" in planned.out
    desktop = macos / "Library" / "Application Support" / "Claude" / "claude_desktop_config.json"
    desktop.parent.mkdir(parents=True)
    desktop.write_text('{"mcpServers": {}}')
    connected = await command("connect", "claude-desktop", "--yes", cold=True)
    assert connected.code == 0, connected.err
    assert "mcp-optimizer" in desktop.read_text()
