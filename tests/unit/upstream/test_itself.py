"""A gateway among its own servers is recognised, and one that reads another file is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.app.servers import server_specs
from mcp_optimizer.config.serverfile.parser import parse_server_file
from mcp_optimizer.config.serverfile.recognised_servers import is_own_address
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.config.trusted_files import trust
from mcp_optimizer.errors import ConfigurationError


def problem(entry: dict[str, Any], path: Path, name: str = "me") -> str:
    [spec] = parse_server_file(json.dumps({"mcpServers": {name: entry}}), path, {})
    return spec.problem


@pytest.mark.parametrize(
    "command",
    [
        ["mcp-optimizer", "serve"],
        ["/opt/venv/bin/mcp-optimizer", "serve"],
        ["C:\\tools\\mcp-optimizer.exe", "serve"],
        ["python3", "-m", "mcp_optimizer", "serve"],
        ["uvx", "--from", "mcp-optimizer-gateway[postgres]==0.1.0", "mcp-optimizer", "serve"],
        ["uvx", "mcp-optimizer-gateway@latest", "serve"],
        ["pipx", "run", "mcp-optimizer-gateway", "serve"],
        ["env", "A=b", "mcp-optimizer", "--log-level", "info", "serve"],
    ],
)
@pytest.mark.parametrize("how", ["--config FILE", "--config=FILE", "env", "default"])
def test_a_gateway_with_the_same_file_is_a_problem_of_its_entry(tmp_path: Path, command: list[str], how: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    entry: dict[str, Any] = {"command": command[0], "args": command[1:]}
    if how == "env":
        entry["env"] = {"MCP_OPTIMIZER_CONFIG": str(path)}
    elif how == "default":
        entry["cwd"] = str(tmp_path)
        trust({path: path.read_bytes()})
    else:
        entry["args"] += how.replace("FILE", str(path)).split()
    assert "it is this gateway with this same file" in problem(entry, path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--config", "other.json"],
        ["serve", "--config", "FILE", "--servers", "github,jira"],
        ["serve", "--demo"],
        ["serve", "--settings", "mine.toml"],
        ["doctor", "--config", "FILE"],
    ],
)
def test_a_gateway_in_front_of_another_is_none(tmp_path: Path, arguments: list[str]) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    entry = {"command": "mcp-optimizer", "args": [word.replace("FILE", str(path)) for word in arguments]}
    assert problem(entry, path) == ""


def test_servers_that_are_only_called_alike_are_none(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    for command in ("mcp-optimizer-lint", "optimizer"):
        assert problem({"command": command, "args": ["serve", "--config", str(path)]}, path) == ""
    assert problem({"command": "mcp-optimizer", "args": ["serve", "--config", str(path)], "disabled": True}, path) == ""


@pytest.mark.parametrize(
    ("url", "host", "port", "is_ours"),
    [
        ("http://127.0.0.1:8765/mcp", "127.0.0.1", 8765, True),
        ("http://localhost:8765/mcp", "127.0.0.1", 8765, True),
        ("http://[::1]:8765/mcp", "::", 8765, True),
        ("http://gateway.internal/mcp", "gateway.internal", 80, True),
        ("http://127.0.0.1:8766/mcp", "127.0.0.1", 8765, False),
        ("http://10.0.0.7:8765/mcp", "127.0.0.1", 8765, False),
        ("http://127.0.0.1:99999/mcp", "127.0.0.1", 8765, False),
        ("http://[bad/mcp", "127.0.0.1", 8765, False),
        ("http://127.0.0.1:0/mcp", "127.0.0.1", 0, False),
    ],
)
def test_the_address_that_is_served_at_is_recognised(url: str, host: str, port: int, is_ours: bool) -> None:
    assert is_own_address(url, host, port) is is_ours


def test_an_entry_with_our_own_address_is_a_problem_and_its_neighbour_is_not(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    entries = {"me": {"url": "http://localhost:8765/mcp"}, "other": {"url": "http://localhost:8766/mcp"}}
    path.write_text(json.dumps({"mcpServers": entries}))
    specs = server_specs(Settings(config=path, http="127.0.0.1:8765"))
    assert ["this gateway itself" in spec.problem for spec in specs] == [True, False]


def test_a_gateway_that_is_too_deep_inside_of_others_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}}')
    monkeypatch.setenv("MCP_OPTIMIZER_DEPTH", "2")
    assert server_specs(Settings(config=path)) == []
    monkeypatch.setenv("MCP_OPTIMIZER_DEPTH", "3")
    with pytest.raises(ConfigurationError, match="runs inside 3 other gateways"):
        server_specs(Settings(config=path))
