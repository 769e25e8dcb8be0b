"""Nothing leaves the machine that was not configured, and nothing is written that is not ours; seen under a tracer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not here"),
    pytest.mark.skipif(sys.platform != "linux", reason="strace is of Linux"),
]

OURS = {".local/share/mcp-optimizer", ".config/mcp-optimizer", ".cache/mcp-optimizer"}
ADDRESS = re.compile(r'connect\(.*?(?:sin_addr=inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)")')
FIND = (
    '{"jsonrpc":"2.0","id":2,"method":"tools/call",'
    '"params":{"name":"find_tool","arguments":{"tool_description":"a card"}}}'
)
OPENING = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    '"clientInfo":{"name":"tracer","version":"1"}}}',
    '{"jsonrpc":"2.0","method":"notifications/initialized"}',
    FIND,
)


def traced(home: Path, *arguments: str, said: str = "", seconds: float = 120.0) -> list[str]:
    """The addresses that a command, and everything it started, connected to."""
    seen = home.parent / "trace.txt"
    inherited = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    traced_command = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=connect", "-o", str(seen)]
    done = subprocess.run(
        [*traced_command, sys.executable, "-m", "mcp_optimizer", *arguments],
        env=inherited,
        cwd=home,
        input=said,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found = (match[1] or match[2] for match in ADDRESS.finditer(seen.read_text(errors="replace")))
    return [address for address in found if not address.startswith("127.") and address != "::1"]


def foreign_files(home: Path) -> list[str]:
    files = (path.relative_to(home).as_posix() for path in home.rglob("*") if not path.is_dir())
    return [file for file in files if not any(file.startswith(f"{ours}/") for ours in OURS)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.mark.promise("nobody-is-phoned")
@pytest.mark.parametrize(
    "arguments",
    [
        ("find", "--demo", "create a card"),
        ("report", "--demo"),
        ("tools", "--demo"),
        ("call", "--demo", "health_check"),
        ("doctor", "--demo"),
        ("servers", "--demo"),
        ("show", "--demo", "create_card"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_calls_nobody_and_writes_only_our_files(home: Path, arguments: tuple[str, ...]) -> None:
    assert traced(home, *arguments) == []
    assert foreign_files(home) == []


@pytest.mark.promise("nobody-is-phoned")
@pytest.mark.parametrize("options", [(), ("--encoder", "static"), ("--scripts", "read")], ids=str)
def test_a_gateway_that_is_searched_calls_nobody(home: Path, options: tuple[str, ...]) -> None:
    assert traced(home, "serve", "--demo", *options, said="\n".join(OPENING) + "\n") == []
    assert foreign_files(home) == []


def test_the_tracer_would_see_a_call(home: Path) -> None:
    script = home / "calls.py"
    script.write_text("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))\n")
    seen = home.parent / "trace.txt"
    tracer = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=connect", "-o", str(seen)]
    subprocess.run([*tracer, sys.executable, str(script)], check=False, timeout=60)
    assert [match[1] for match in ADDRESS.finditer(seen.read_text())] == ["192.0.2.1"]
    assert foreign_files(home) == ["calls.py"]
