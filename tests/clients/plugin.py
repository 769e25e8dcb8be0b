"""python -m tests.clients.plugin [--if-possible]: the real Claude Code installs our plugin, and uses each of its parts.

Installs it from the marketplace file of this checkout, as a person would, and lets a scripted model call tools: the
server is connected and its tools are in view, the skill is listed, and the hook before `call_tool` refuses, shows and
lets pass what the person's settings say about the tool inside. `uvx` and `uv` on its path start this checkout: the
version that the plugin names is not published yet.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients.endpoint import Call, Conversation, Endpoint
from tests.clients.installing import FOLDER, install_from_npm
from tests.clients.lab import TOKEN, TOKEN_VARIABLE
from tests.clients.programs import CLIENTS
from tests.conformance.suite import ROOT, NotAvailable

SHOP = "toyshop"
DENIED, ALLOWED = "delete_orders", "shop_status"
_SECONDS = 120
_TRIES = 3


@dataclass(frozen=True)
class Seen:
    """What came of it."""

    installed: str
    servers: str
    first: str
    """The first request that offered tools, as sent to the model."""
    refused: str
    called: str
    printed: str
    started: bool
    """Whether the denied tool reached its server."""


class Person:
    """Somebody with Claude Code, a server file of ours, and settings with permissions."""

    def __init__(self, node: str, folder: Path, url: str) -> None:
        self._claude = next(client for client in CLIENTS if client.name == "claude-code").command(node)
        self._home = folder / "home"
        self._work = folder / "work"
        self.log = folder / "lab.log"
        self._url = url
        programs = folder / "bin"
        for made in (self._home / ".claude", self._home / ".config" / "mcp-optimizer", self._work, programs):
            made.mkdir(parents=True)
        self.log.touch()
        self._write_programs(programs)
        path = f"{programs}:{Path(node).parent}:/usr/local/bin:/usr/bin:/bin"
        self._environment = {"HOME": str(self._home), "PATH": path, "LANG": "C.UTF-8", "DISABLE_TELEMETRY": "1"}
        self._environment |= {TOKEN_VARIABLE: TOKEN, "MODEL_KEY": "none", "DO_NOT_TRACK": "1", "NO_COLOR": "1"}
        self._write_files()

    def _write_programs(self, folder: Path) -> None:
        """`uvx PACKAGE@VERSION ...` is this checkout's program, and `uv run ... FILE` is Python."""
        ours = Path(sys.executable).with_name("mcp-optimizer-gateway")
        (folder / "uvx").write_text(f'#!/bin/sh\necho "$1" >> "{folder}/uvx.log"\nshift\nexec "{ours}" "$@"\n')
        (folder / "uv").write_text(f'#!/bin/sh\nfor last; do :; done\nexec "{sys.executable}" "$last"\n')
        for program in ("uvx", "uv"):
            (folder / program).chmod(0o700)

    def _write_files(self) -> None:
        lab = [str(Path(__file__).with_name("lab.py")), str(self.log), "--name", SHOP]
        servers = {SHOP: {"command": sys.executable, "args": lab}}
        config = self._home / ".config" / "mcp-optimizer" / "mcp.json"
        config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        rules = {"deny": [f"mcp__{SHOP}__{DENIED}"], "allow": ["mcp__plugin_mcp-optimizer_mcp-optimizer__find_tool"]}
        rules["allow"].append(f"mcp__{SHOP}__{ALLOWED}")
        settings = self._home / ".claude" / "settings.json"
        settings.write_text(json.dumps({"permissions": rules}), encoding="utf-8")
        (self._home / ".claude.json").write_text(json.dumps({"hasCompletedOnboarding": True}), encoding="utf-8")

    def run(self, *words: str, more: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            [*self._claude, *words],
            cwd=self._work,
            env=self._environment | dict(more or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        return done.stdout

    def servers(self) -> str:
        """What `claude mcp list` says. A first start may take longer than it waits."""
        said = ""
        for _ in range(_TRIES):
            if "onnected" in (said := self.run("mcp", "list")):
                break
        return said

    def ask(self) -> str:
        client = next(client for client in CLIENTS if client.name == "claude-code")
        return self.run(*client.arguments(self._url), more={**client.environment(self._url), **client.waits})


def live_through(node: str) -> Seen:
    folder = FOLDER / "runs" / "plugin"
    shutil.rmtree(folder, ignore_errors=True)
    with Endpoint(folder / "requests").running() as endpoint:
        person = Person(node, folder / "user", endpoint.url("plugin"))
        installed = person.run("plugin", "validate", str(ROOT))
        installed += person.run("plugin", "validate", str(ROOT / "stores" / "claude-code"))
        installed += person.run("plugin", "marketplace", "add", str(ROOT))
        installed += person.run("plugin", "install", "mcp-optimizer@mcp-optimizer-gateway")
        servers = person.servers()
        held = endpoint.begin("plugin", "day", _steps())
        printed = person.ask()
        did = person.log.read_text(encoding="utf-8")
        return Seen(installed, servers, json.dumps(held.first.body), *_read(held), printed, DENIED in did)


def _steps() -> Sequence[Call]:
    find = Call(("find_tool",), {"tool_description": "whether the shop is open"})
    denied = Call(("call_tool",), {"tool_name": DENIED, "server_name": SHOP, "parameters": {}})
    allowed = Call(("call_tool",), {"tool_name": ALLOWED, "server_name": SHOP, "parameters": {}})
    return [find, denied, allowed]


def _read(held: Conversation) -> tuple[str, str]:
    texts = [result.text if (result := held.read(step)) else f"(missing: {held.missing})" for step in (1, 2)]
    return texts[0], texts[1]


def problems(seen: Seen) -> list[str]:
    """Which parts of the plugin did not do what they are for."""
    wanted = {
        f"the plugin was not installed: {seen.installed}": "Successfully installed plugin" in seen.installed,
        f"its files are not valid: {seen.installed}": "Validation failed" not in seen.installed,
        f"the server is not connected: {seen.servers}": "mcp-optimizer" in seen.servers and "onnected" in seen.servers,
        "its tools are not in view": "__call_tool" in seen.first,
        "its skill is not listed": "mcp-optimizer:mcp-optimizer" in seen.first,
        f"what is denied was not refused: {seen.refused}": f"{SHOP}: {DENIED}" in seen.refused,
        "what is denied was called": not seen.started,
        f"what is allowed was not called: {seen.called} {seen.printed}": "It is open." in seen.called,
    }
    return [problem for problem, holds in wanted.items() if not holds]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.plugin")
    parser.add_argument("--if-possible", action="store_true")
    options = parser.parse_args()
    try:
        node = install_from_npm(["@anthropic-ai/claude-code"])
    except NotAvailable as problem:
        print(f"plugin: not tried, because {problem}")
        return 0 if options.if_possible else 1
    found = problems(live_through(node))
    for line in found:
        print(f"plugin: {line[:1500]}")
    print(f"plugin: {8 - len(found)} of 8 hold")
    return 1 if found else 0


if __name__ == "__main__":
    os.environ.pop("CLAUDE_CONFIG_DIR", None)
    sys.exit(main())
