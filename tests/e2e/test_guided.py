"""`mcp-optimizer` alone on a terminal leads a new user; the help begins with what a new user needs."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mcp_optimizer.cli import FIRST
from tests.conftest import plain_server
from tests.e2e.running import COMMAND, command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SECONDS = 60.0


class Terminal:
    """A program at a terminal of 80 columns, in a home of its own."""

    def __init__(self, home: Path, *arguments: str) -> None:
        own, theirs = pty.openpty()
        variables = {name: str(home / name) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME")}
        self._end = own
        self.shown = ""
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=home,
            env={**os.environ, **variables, "HOME": str(home), "COLUMNS": "80", "TERM": "xterm"},
        )
        os.close(theirs)

    def until(self, *words: str) -> str:
        """What was shown, once it has one of these words or the program has ended."""
        ends_at = time.monotonic() + _SECONDS
        while not any(word in self.shown for word in words) and time.monotonic() < ends_at:
            if select.select([self._end], [], [], 0.2)[0]:
                try:
                    self.shown += _ESCAPES.sub("", os.read(self._end, 65_536).decode(errors="replace"))
                except OSError:
                    break
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


def test_a_new_user_is_led_to_a_connected_client(tmp_path: Path) -> None:
    entries = {"one": plain_server("one"), "broken": {"command": "no-such-program"}}
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": entries}))
    terminal = Terminal(tmp_path)
    try:
        assert "1 of 4" in terminal.until("[y/N]")
        terminal.type("y\n")
        shown = terminal.until("Connect Cursor? [y/N]")
        assert "9 tools" in shown
        assert "of them (name, description, input schema) in every prompt" in " ".join(shown.split())
        assert "2 servers, 1 with a problem" in shown
        terminal.type("y\n")
        terminal.until("Switch them off in Cursor? [y/N]")
        terminal.type("y\n")
        assert "mcp-optimizer disconnect CLIENT" in terminal.until("byte for byte")
        assert terminal.process.wait(_SECONDS) == 0
    finally:
        terminal.close()
    assert list(json.loads(file.read_text())["mcpServers"]) == ["mcp-optimizer"]


def test_what_is_done_is_not_asked_again(tmp_path: Path) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": {"one": plain_server("one")}}))
    for first in (True, False):
        terminal = Terminal(tmp_path)
        try:
            if first:
                terminal.until("[y/N]")
                terminal.type("y\n")
            shown = terminal.until("Connect Cursor? [y/N]")
            assert ("Copy them into" in shown) is first
            terminal.type("y\n")
            if first:
                terminal.until("Switch them off in Cursor? [y/N]")
                terminal.type("y\n")
            shown = terminal.until("byte for byte")
            assert ("Switch them off" in shown) is first
            assert terminal.process.wait(_SECONDS) == 0
        finally:
            terminal.close()


def test_without_servers_it_says_how_to_get_one(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    try:
        assert "mcp-optimizer add" in terminal.until("mcp-optimizer demo")
        assert terminal.process.wait(_SECONDS) == 0
    finally:
        terminal.close()


def test_serve_on_a_terminal_says_what_it_waits_for(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "serve", "--demo", "--database", "none", "--encoder", "none")
    try:
        assert "mcp-optimizer connect CLIENT" in terminal.until("--http 127.0.0.1:8765")
    finally:
        terminal.close()


async def test_without_a_terminal_it_shows_the_help_which_begins_with_ten_commands() -> None:
    done = await command("--help", env={"COLUMNS": "200", "TERM": "dumb"})
    section = done.out.partition("─ Start here ─")[2].partition("╰")[0]
    assert re.findall(r"^│ (\w+)", section, re.MULTILINE) == list(FIRST)
    assert len(FIRST) == 10
    assert "Usage:" in (await command()).err + (await command()).out
