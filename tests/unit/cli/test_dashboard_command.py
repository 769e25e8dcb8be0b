"""A gateway says with which command its dashboard is opened: one that finds it, and quotes no password."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from mcp_optimizer.app.control.wire import identity
from mcp_optimizer.cli.serve_http import dashboard_command
from mcp_optimizer.config.settings import load_settings


def test_without_options_it_is_the_plain_command() -> None:
    assert dashboard_command(load_settings(environment={})) == "mcp-optimizer dashboard"


@pytest.mark.parametrize(
    "given",
    [
        {"demo": True},
        {"config": Path("my servers.json")},
        {"config": Path("a.json"), "servers": "one,two"},
        {"config": Path("a.json"), "database": "other.db"},
        {"database": "none"},
    ],
)
def test_it_finds_the_gateway_from_another_folder(
    given: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(given, environment={})
    served = identity(settings)
    words = shlex.split(dashboard_command(settings))[2:]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    said: dict[str, object] = {}
    while words:
        name = words.pop(0).removeprefix("--")
        said[name] = True if name == "demo" else words.pop(0)
    assert identity(load_settings(said, environment={})) == served


def test_a_password_is_not_shown() -> None:
    shown = dashboard_command(load_settings({"database": "postgresql://u:hunter2hunter2@h/d"}, environment={}))
    assert "hunter2" not in shown
    assert "--database" in shown
