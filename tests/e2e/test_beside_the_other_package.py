"""In one environment with the package `mcp-optimizer`, which has our import package and command, ours still works.

The other one is played by the files that it puts over ours; `scripts/try_wheel.py` does the same with the published
package, where it can be fetched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from mcp_optimizer import __version__
from mcp_optimizer.cli.doctor import other_package
from tests.conftest import ROOT

OTHER_MAIN = 'raise SystemExit("the other program was started")\n'
SCRIPT = "from mcp_optimizer_gateway import main\n\nif __name__ == '__main__':\n    main()\n"


@pytest.fixture(params=["the other one came later", "the other one was removed"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of packages as it looks after both were installed: ours, without what the other one has replaced."""
    ours = tmp_path / "packages" / "mcp_optimizer"
    ours.mkdir(parents=True)
    for entry in (ROOT / "src" / "mcp_optimizer").iterdir():
        if entry.name not in ("__init__.py", "__main__.py", "__pycache__"):
            (ours / entry.name).symlink_to(entry)
    if request.param == "the other one came later":
        (ours / "__init__.py").touch()
        (ours / "__main__.py").write_text(OTHER_MAIN)
        (ours / "config.py").write_text("settings = None\n")
    (tmp_path / "packages" / "mcp_optimizer_demo").symlink_to(ROOT / "src" / "mcp_optimizer_demo")
    launcher = tmp_path / "packages" / "mcp_optimizer_gateway"
    shutil.copytree(ROOT / "src" / "mcp_optimizer_gateway", launcher, ignore=shutil.ignore_patterns("__pycache__"))
    # What the wheel does.
    shutil.copy(ROOT / "src" / "mcp_optimizer" / "__init__.py", launcher / "_package.py")
    (tmp_path / "mcp-optimizer-gateway").write_text(SCRIPT)
    return tmp_path


def run(environment: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MCP_OPTIMIZER_")}
    # Without the files that lead to this checkout, which `-S` leaves unread.
    path = [str(environment / "packages"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    variables |= {"PYTHONPATH": os.pathsep.join(path), "HOME": str(environment)}
    variables |= {"XDG_DATA_HOME": str(environment / "data"), "XDG_CONFIG_HOME": str(environment / "config")}
    return subprocess.run(
        [sys.executable, "-S", *words], env=variables, cwd=environment, capture_output=True, text=True, timeout=120
    )


def test_both_ways_to_start_it_give_ours(environment: Path) -> None:
    for words in (["mcp-optimizer-gateway"], ["-m", "mcp_optimizer_gateway"]):
        done = run(environment, *words, "--version")
        assert done.stdout.strip() == f"mcp-optimizer {__version__}", done.stderr
    replaced = run(environment, "-m", "mcp_optimizer", "--version")
    assert replaced.returncode != 0, "this environment does not show what the test is for"


@pytest.mark.slow
def test_it_finds_calls_and_selects(environment: Path) -> None:
    options = ["--demo", "--servers", "kanban", "--json"]
    found = run(environment, "mcp-optimizer-gateway", "find", "move a card to another column", *options)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["tools"][0]["name"] == "move_card", found.stderr
    # `select` is evaluated by a process of its own.
    called = run(environment, "mcp-optimizer-gateway", "call", "list_boards", *options, "--select", "boards[0].name")
    assert called.returncode == 0, called.stderr
    assert json.loads(called.stdout)["content"][0]["text"], called.stderr


def test_doctor_names_the_other_package_only_where_it_is() -> None:
    def files(name: str) -> Sequence[str] | None:
        return ["mcp_optimizer/__init__.py", "mcp_optimizer/main.py"] if name == "mcp-optimizer" else None

    assert "`mcp-optimizer-gateway` starts this one" in other_package(files)
    assert other_package(lambda _: None) == ""
    # A later release of it may have renamed its package.
    assert other_package(lambda _: ["mathematics/__init__.py"]) == ""
