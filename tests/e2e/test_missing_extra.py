"""Scripts are wanted, and their extra is not installed: clients keep everything else, and people are told."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import HELLO
from tests.e2e.running import COMMAND

pytestmark = pytest.mark.process

HIDDEN = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pydantic_monty" else find(name, package)
"""
INSTALL = "pip install 'mcp-optimizer-gateway[scripts]'"


@pytest.fixture
def without_extra(tmp_path: Path) -> Mapping[str, str]:
    """The variables of a process that finds no pydantic_monty."""
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HIDDEN)
    return {**os.environ, "PYTHONPATH": str(hook)}


def test_a_client_gets_the_other_tools_and_stderr_says_what_to_install(
    without_extra: Mapping[str, str], write_servers: WriteServers
) -> None:
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    options = ["--config", str(write_servers({"plain": plain_server("plain")})), "--database", "none"]
    done = subprocess.run(
        [*COMMAND, "serve", "--scripts", "read", *options],
        input="".join(f"{json.dumps(request)}\n" for request in requests),
        env=without_extra,
        capture_output=True,
        text=True,
        timeout=60,
    )
    answers = {answer["id"]: answer for line in done.stdout.splitlines() if "id" in (answer := json.loads(line))}
    names = {tool["name"] for tool in answers[2]["result"]["tools"]}
    assert {"find_tool", "call_tool"} <= names
    assert "run_script" not in names
    assert INSTALL in done.stderr.splitlines()[0]


def test_doctor_says_what_to_install(without_extra: Mapping[str, str], write_servers: WriteServers) -> None:
    options = ["--config", str(write_servers({"plain": plain_server("plain")})), "--database", "none"]
    done = subprocess.run(
        [*COMMAND, "doctor", "--scripts", "read", *options],
        env=without_extra,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"scripts = read: Scripts need another package. Install it with: {INSTALL}" in done.stdout
