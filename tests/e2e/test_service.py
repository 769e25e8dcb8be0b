"""`service`: what it writes and runs, with a service manager that only takes notes."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_optimizer.cli.service import MARK, GatewayService, launchd_plist, place_on, plan_for, systemd_unit
from mcp_optimizer.errors import ConfigurationError
from tests.e2e.running import command

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="its service manager is systemd")

ODD = '/home/a b/100%/$HOME/"x"\\y'


def described(folder: str = "/srv") -> GatewayService:
    return GatewayService(
        program=(f"{folder}/bin/mcp-optimizer",),
        server_file=Path(f"{folder}/mcp.json"),
        http="127.0.0.1:8765",
        search_path=f"{folder}/bin:/usr/bin",
        variables=Path(f"{folder}/service.env"),
        home=Path(folder),
        settings_file=Path(f"{folder}/settings.toml"),
    )


@pytest.fixture
def world(tmp_path: Path) -> dict[str, str]:
    """A home with a server file, and a systemctl that writes down how it is called."""
    programs = tmp_path / "programs"
    programs.mkdir()
    notes = tmp_path / "notes"
    systemctl = programs / "systemctl"
    systemctl.write_text(
        f'#!/bin/sh\necho "$@" >> {notes}\n[ ! -e {tmp_path}/broken ] || {{ echo "no bus" >&2; exit 1; }}\n'
    )
    systemctl.chmod(0o755)
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    return {
        "HOME": str(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }


UNIT = Path("config/systemd/user/mcp-optimizer.service")


def notes(tmp_path: Path) -> list[str]:
    file = tmp_path / "notes"
    return file.read_text().splitlines() if file.exists() else []


async def test_installing_writes_a_unit_and_starts_it_and_uninstalling_leaves_nothing(
    tmp_path: Path, world: dict[str, str]
) -> None:
    config = tmp_path / "mcp.json"
    done = await command("service", "install", "--yes", "--config", config, env=world, cwd=tmp_path, cold=True)
    assert done.code == 0, done.err
    text = (tmp_path / UNIT).read_text()
    assert MARK in text
    assert f'"--config" "{config}" "--http" "127.0.0.1:8765"' in text
    assert "ExecReload=/bin/kill -HUP $MAINPID" in text
    assert [line.split()[1] for line in notes(tmp_path)] == ["daemon-reload", "enable", "restart"]
    variables = tmp_path / "config" / "mcp-optimizer" / "service.env"
    assert stat.S_IMODE(variables.stat().st_mode) == 0o600
    assert f"EnvironmentFile=-{variables}" in text
    assert (await command("service", "status", "--json", env=world)).json["running"] is True
    removed = await command("service", "uninstall", "--yes", env=world)
    assert removed.code == 0, removed.err
    assert not (tmp_path / UNIT).exists()
    assert [line.split()[1] for line in notes(tmp_path)][-2:] == ["disable", "daemon-reload"]
    assert (await command("service", "status", env=world)).code == 1
    assert (await command("service", "uninstall", "--yes", env=world)).code == 1


async def test_a_dry_run_and_an_unanswered_question_change_nothing(tmp_path: Path, world: dict[str, str]) -> None:
    config = tmp_path / "mcp.json"
    shown = await command("service", "install", "--dry-run", "--config", config, env=world)
    assert "ExecStart=" in shown.out
    assert (await command("service", "install", "--dry-run", "--json", "--config", config, env=world)).json["run"]
    asked = await command("service", "install", "--config", config, env=world)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert not (tmp_path / UNIT).exists()
    assert notes(tmp_path) == []


@pytest.mark.parametrize("how", ["file", "link"])
async def test_a_file_of_somebody_else_stays(tmp_path: Path, world: dict[str, str], how: str) -> None:
    unit = tmp_path / UNIT
    unit.parent.mkdir(parents=True)
    if how == "file":
        unit.write_text("[Service]\nExecStart=/bin/mine\n")
    else:
        (tmp_path / "other").write_text(MARK)
        unit.symlink_to(tmp_path / "other")
    before = unit.read_text()
    for name in ("install", "uninstall"):
        extra = ["--config", tmp_path / "mcp.json"] if name == "install" else []
        assert (await command("service", name, "--yes", *extra, env=world)).code == 2
    assert unit.read_text() == before
    assert notes(tmp_path) == []


async def test_what_a_service_manager_complains_about_is_said(tmp_path: Path, world: dict[str, str]) -> None:
    (tmp_path / "broken").touch()
    done = await command("service", "install", "--yes", "--config", tmp_path / "mcp.json", env=world)
    assert done.code == 1
    assert "`systemctl --user daemon-reload` failed: no bus" in done.err


async def test_without_a_server_file_nothing_is_installed(tmp_path: Path, world: dict[str, str]) -> None:
    done = await command("service", "install", "--yes", "--config", tmp_path / "none.json", env=world)
    assert (done.code, "mcp-optimizer init" in done.err) == (2, True)


async def test_the_unit_for_a_whole_system_is_printed(tmp_path: Path, world: dict[str, str]) -> None:
    done = await command("service", "install", "--system", "--config", tmp_path / "mcp.json", env=world)
    assert "ProtectSystem=full" in done.out
    assert "WantedBy=multi-user.target" in done.out
    assert notes(tmp_path) == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("user", ["", "root"])
def test_systemd_accepts_the_units(tmp_path: Path, user: str) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mcp-optimizer"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "mcp-optimizer.service"
    unit.write_text(systemd_unit(described(str(tmp_path)), user=user))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert "mcp-optimizer.service" not in done.stderr


def test_odd_paths_stay_one_word_in_a_unit() -> None:
    text = systemd_unit(described(ODD))
    assert r'"/home/a b/100%%/$$HOME/\"x\"\\y/mcp.json"' in text
    assert 'WorkingDirectory=/home/a b/100%%/$HOME/"x"\\y' in text


@pytest.mark.parametrize("write", [systemd_unit, launchd_plist])
def test_a_path_cannot_add_lines(write: Callable[[GatewayService], str]) -> None:
    with pytest.raises(ConfigurationError, match="line break"):
        write(described("/srv\nExecStartPre=/bin/evil"))


def test_on_macos_it_is_a_launch_agent() -> None:
    place = place_on("darwin", Path("/Users/ada"), Path("/Users/ada/.config"), 501)
    plan = plan_for("darwin", place, described(ODD), "ada")
    read = plistlib.loads(plan.text.encode())
    assert read["ProgramArguments"][:4] == [f"{ODD}/bin/mcp-optimizer", "serve", "--config", f"{ODD}/mcp.json"]
    assert read["KeepAlive"] == {"SuccessfulExit": False}
    assert MARK in plan.text
    assert place.file == Path("/Users/ada/Library/LaunchAgents/mcp-optimizer.plist")
    assert place.starting[-1] == ("launchctl", "bootstrap", "gui/501", str(place.file))


def test_on_windows_it_says_what_to_do_instead() -> None:
    with pytest.raises(ConfigurationError, match="schtasks"):
        place_on("win32", Path("C:/"), Path("C:/"), 0)


async def test_the_preview_names_no_value_of_the_environment(tmp_path: Path, world: dict[str, str]) -> None:
    shown = await command(
        "service",
        "install",
        "--dry-run",
        "--json",
        "--config",
        tmp_path / "mcp.json",
        env={**world, "TOKEN": "hunter2"},
    )
    assert "hunter2" not in json.dumps(shown.json)
