"""The screens of the page with the first ten minutes are what its commands print."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "start.md"
_SCREEN = re.compile(r"^```text\n(\$ .*?)^```$", re.DOTALL | re.MULTILINE)
_SECONDS = re.compile(r"up in [\d.,]+ m?s")
_PROGRAM = re.compile(r'"[^"]*/mcp-optimizer-gateway"')


def screens() -> list[tuple[list[str], list[str]]]:
    """The arguments of each command on the page, with the lines below it."""
    found = []
    for block in _SCREEN.findall(PAGE.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ mcp-optimizer ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            found.append((shlex.split(command), [line for line in map(in_short, lines) if line]))
    return found


def in_short(line: str) -> str:
    return " ".join(_PROGRAM.sub('"mcp-optimizer-gateway"', _SECONDS.sub("up in 1 s", line)).split())


def printed(home: Path, *arguments: str) -> str:
    """What a command prints in this home, whose path is then that of the page."""
    variables = {"HOME": str(home), "PATH": "/usr/bin:/bin", "COLUMNS": "100", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-m", "mcp_optimizer", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        env=variables,
        timeout=240,
    )
    return done.stdout.replace(str(home), "/home/ada")


async def test_every_screen_of_the_first_ten_minutes_is_what_the_command_prints(tmp_path: Path) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    entries = {
        name: {"command": sys.executable, "args": ["-m", f"mcp_optimizer_demo.{module}"]}
        for name, module in (("kanban", "kanban"), ("shop", "sql"))
    }
    file.write_text(json.dumps({"mcpServers": entries}, indent=2) + "\n")
    shown = screens()
    assert [arguments[0] for arguments, _ in shown] == ["import", "doctor", "find", "connect", "report"]
    for arguments, lines in shown:
        text = await asyncio.to_thread(printed, tmp_path, *arguments)
        assert not set(lines) - set(map(in_short, text.splitlines())), text
        if arguments[0] == "import":
            await asyncio.to_thread(printed, tmp_path, "import", "--yes")


async def test_the_figures_of_the_demo_on_the_page_are_those_it_prints(tmp_path: Path) -> None:
    [shown] = re.findall(r"^```\n(kanban: .*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    text = await asyncio.to_thread(printed, tmp_path, "demo")
    assert in_short(shown.replace("\n", " ")) in in_short(text.replace("\n", " "))
