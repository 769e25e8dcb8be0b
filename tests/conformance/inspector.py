"""python -m tests.conformance.inspector: the official inspector lists, calls and reads through the gateway.

Runs over HTTP and over stdio. With `--if-possible`, prints the reason and succeeds where npm or Node is not available.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conformance.__main__ import SERVER, gateway
from tests.conformance.suite import FOLDER, NotAvailable, get_node, install_unless

PACKAGE = "@modelcontextprotocol/inspector@0.15.0"
_SECONDS = 120


def get_inspector() -> list[str]:
    """The command that starts the inspector, which is installed if necessary."""
    script = FOLDER / "node_modules" / "@modelcontextprotocol" / "inspector" / "cli" / "build" / "cli.js"
    node = get_node()
    install_unless(script.exists, PACKAGE)
    if not script.exists():
        raise NotAvailable(f"npm did not install {PACKAGE}")
    return [node, str(script), "--cli"]


def ask(command: Sequence[str], target: Sequence[str], *request: str) -> dict[str, Any]:
    done = subprocess.run(
        [*command, *target, "--method", *request], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        raise SystemExit(f"inspector: {' '.join(request)} failed: {done.stderr.strip()[-500:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def check(command: Sequence[str], target: Sequence[str]) -> None:
    tools = [tool["name"] for tool in ask(command, target, "tools/list")["tools"]]
    assert "json_schema_2020_12_tool" in tools, tools
    called = ask(command, target, "tools/call", "--tool-name", "test_simple_text")
    assert called["content"][0]["text"] == "This is a simple text response for testing.", called
    read = ask(command, target, "resources/read", "--uri", "test://static-text")
    assert read["contents"][0]["text"] == "This is the content of the static text resource.", read
    assert len(ask(command, target, "prompts/list")["prompts"]) == 5


def main() -> int:
    try:
        command = get_inspector()
    except NotAvailable as problem:
        print(f"inspector: not run, because {problem}")
        return 0 if "--if-possible" in sys.argv else 2
    entry = {"command": sys.executable, "args": [str(SERVER)]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with gateway(folder, entry) as url:
            check(command, [url, "--transport", "http"])
        print("inspector: lists, calls and reads over HTTP")
        options = ["--config", str(folder / "mcp.json"), "--mode", "transparent", "--database", "none"]
        serve = ["-m", "mcp_optimizer", "serve", "--alone", *options, "--encoder", "none"]
        inspected = folder / "inspected.json"
        servers = {"mcpServers": {"gateway": {"command": sys.executable, "args": serve}}}
        inspected.write_text(json.dumps(servers), encoding="utf-8")
        check(command, ["--config", str(inspected), "--server", "gateway"])
        print("inspector: lists, calls and reads over stdio")
    return 0


if __name__ == "__main__":
    sys.exit(main())
