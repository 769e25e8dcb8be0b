"""Measures how the code is laid out, and which files a call passes.

    python scripts/house.py [--package FOLDER]     rooms, arrows, floors, files, headers, private members
    python scripts/house.py trace [--python FILE]  files and changes of room of one call: stdio, legacy and modern HTTP

A room is a folder of the package, and a module at its root is one of its own. An arrow says that a file of one room
imports one of another. A floor is one more than the highest of the rooms below it. A header is what stands before a
file's first definition: its docstring and its imports. `--package` and `--python` name another checkout's, so that two
states are measured by the same script.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "mcp_optimizer"
SMALL = 60
"""Lines under which a file is part of the idea of its only importer, unless it says why not."""

OWN = frozenset({"_exit", "_replace", "_asdict", "_fields", "_mapping"})
"""Members with an underscore that their libraries document."""


def read(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Source:
    """One file of the package."""

    package: Path
    path: Path
    read: Callable[[Path], ast.Module] = read

    @cached_property
    def tree(self) -> ast.Module:
        return self.read(self.path)

    @cached_property
    def lines(self) -> int:
        return len(self.path.read_text(encoding="utf-8").splitlines())

    @property
    def room(self) -> str:
        return room_of(self.path.relative_to(self.package))

    @property
    def header(self) -> int:
        """Lines before the first definition."""
        defined = [
            node for node in self.tree.body if not (isinstance(node, ast.Import | ast.ImportFrom) or is_text(node))
        ]
        return defined[0].lineno - 1 if defined else self.lines

    def imported_rooms(self) -> Iterator[str]:
        for name in self._imported():
            parts = name.split(".")
            if parts[0] == self.package.name and len(parts) > 1 and not parts[1].startswith("__"):
                yield parts[1]

    def _imported(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                at_root = node.module == self.package.name
                yield from (f"{node.module}.{alias.name}" for alias in node.names) if at_root else (node.module,)

    def private_members(self) -> int:
        """Uses of a private member of another object, by attribute or by `getattr` with its name."""
        return sum(is_private_use(node) for node in ast.walk(self.tree))


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_private_name(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OWN


def is_private_use(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        return is_private_name(node.attr) and not of_itself
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
        name = node.args[1] if len(node.args) > 1 else None
        return isinstance(name, ast.Constant) and is_private_name(str(name.value))
    return False


def room_of(relative: Path) -> str:
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def sources(package: Path, read: Callable[[Path], ast.Module] = read) -> list[Source]:
    return [Source(package, path, read) for path in sorted(package.rglob("*.py"))]


def arrows(files: list[Source]) -> set[tuple[str, str]]:
    found = {(file.room, room) for file in files for room in file.imported_rooms()}
    return {(one, other) for one, other in found if one != other and one != "__init__"}


def floors(drawn: set[tuple[str, str]]) -> int:
    """The length of the longest way down, in rooms."""
    below = defaultdict(set)
    for one, other in drawn:
        below[one].add(other)
    height: dict[str, int] = {}

    def of(room: str, above: tuple[str, ...] = ()) -> int:
        if room in above:
            raise SystemExit(f"rooms import each other: {' -> '.join([*above, room])}")
        if room not in height:
            height[room] = 1 + max((of(other, (*above, room)) for other in below[room]), default=0)
        return height[room]

    return max(of(room) for room in list(below))


def satellites(files: list[Source]) -> list[Source]:
    """Small files that exactly one file imports, which is of the same room."""
    named = {
        ".".join([file.package.name, *file.path.relative_to(file.package).with_suffix("").parts]): file
        for file in files
    }
    importers = defaultdict(set)
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    if name in named:
                        importers[name].add(file)
    return [
        named[name]
        for name, by in importers.items()
        if len(by) == 1 and next(iter(by)).room == named[name].room and named[name].lines < SMALL
    ]


def measure(package: Path) -> dict[str, Any]:
    files = sources(package)
    drawn = arrows(files)
    lines = sum(file.lines for file in files)
    rooms = {file.room for file in files if file.path.parent != package}
    return {
        "rooms": len(rooms),
        "files at the root": sum(file.path.parent == package for file in files),
        "arrows": len(drawn),
        "floors": floors(drawn),
        "files": len(files),
        "lines": lines,
        "lines of the median file": statistics.median(file.lines for file in files),
        "share of headers": f"{sum(file.header for file in files) / lines:.1%}",
        f"files under {SMALL} lines with one importer, of the same room": len(satellites(files)),
        "private members of other objects": sum(file.private_members() for file in files),
    }


# The way of one call. A profile function notes each call of a function of the package between two signals.

TRACED = """
import signal, sys, json
from pathlib import Path
import mcp_optimizer
package = str(Path(mcp_optimizer.__file__).parent) + "/"
passed = []
def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(package):
        passed.append(frame.f_code.co_filename[len(package):])
def begin(*_):
    passed.clear()
    sys.setprofile(note)
def end(*_):
    sys.setprofile(None)
    Path(sys.argv[0] + ".json").write_text(json.dumps(passed))
signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, end)
from mcp_optimizer.cli import main
main()
"""
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "house", "version": "1"}}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "house", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call_message(number: int, meta: dict[str, Any] | None = None) -> dict[str, Any]:
    arguments = {"tool_name": "echo", "parameters": {"text": "hello"}}
    params = {"name": "call_tool", "arguments": arguments} | ({"_meta": meta} if meta else {})
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


class Traced:
    """A gateway in front of the echo server of the benchmarks, with its calls noted on request."""

    def __init__(self, python: str, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp())
        program = self.folder / "traced.py"
        program.write_text(TRACED, encoding="utf-8")
        echo = ROOT / "benchmarks" / "gateway" / "echo_server.py"
        servers = {"mcpServers": {"echo": {"command": python, "args": [str(echo)]}}}
        (self.folder / "mcp.json").write_text(json.dumps(servers), encoding="utf-8")
        self.trace = program.with_name("traced.py.json")
        place = {"HOME": str(self.folder), "PYTHONDONTWRITEBYTECODE": ""}
        self.process = subprocess.Popen(
            [python, str(program), "serve", "--config", str(self.folder / "mcp.json"), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MCP_OPTIMIZER_SHARED": "0", **place},
            cwd=self.folder,
        )

    def begin(self) -> None:
        """After what the start, and the calls that warm it up, left to be done."""
        time.sleep(4)
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.2)

    def end(self) -> list[str]:
        """The files that were passed, in order."""
        self.process.send_signal(signal.SIGUSR2)
        while not self.trace.exists():
            time.sleep(0.05)
        time.sleep(0.1)
        passed: list[str] = json.loads(self.trace.read_text(encoding="utf-8"))
        self.trace.unlink()
        return passed

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def over_stdio(python: str) -> list[str]:
    gateway = Traced(python)
    pipe_in, pipe_out = gateway.process.stdin, gateway.process.stdout
    assert pipe_in is not None
    assert pipe_out is not None

    def send(message: dict[str, Any]) -> None:
        write_line(pipe_in, message)

    def answer(number: int) -> None:
        while json.loads(pipe_out.readline()).get("id") != number:
            pass

    send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
    answer(1)
    send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    for number in range(2, 12):
        send(call_message(number))
        answer(number)
    gateway.begin()
    send(call_message(99))
    answer(99)
    passed = gateway.end()
    gateway.stop()
    return passed


def write_line(pipe: IO[bytes], message: dict[str, Any]) -> None:
    pipe.write(json.dumps(message).encode() + b"\n")
    pipe.flush()


def over_http(python: str, *, modern: bool) -> list[str]:
    port = 8000 + os.getpid() % 1000
    gateway = Traced(python, "--http", f"127.0.0.1:{port}")
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

    def post(message: dict[str, Any]) -> str | None:
        extra = (
            {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "call_tool"}
            if modern
            else {}
        )
        with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("POST", "/mcp", json.dumps(message).encode(), headers | extra)
            response = connection.getresponse()
            response.read()
            return response.getheader("mcp-session-id")

    wait_for(port)
    if not modern:
        session = post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
        headers |= {"mcp-session-id": session or "", "mcp-protocol-version": "2025-06-18"}
        post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    for number in range(2, 12):
        post(call_message(number, MODERN if modern else None))
    gateway.begin()
    post(call_message(99, MODERN if modern else None))
    passed = gateway.end()
    gateway.stop()
    return passed


def wait_for(port: int) -> None:
    for _ in range(600):
        try:
            with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
                connection.request("GET", "/health")
                connection.getresponse().read()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the gateway did not start")


def way(passed: list[str]) -> dict[str, int]:
    rooms = [room_of(Path(name)) for name in passed]
    changes = sum(one != other for one, other in itertools.pairwise(rooms))
    return {"rooms": len(set(rooms)), "files": len(set(passed)), "functions": len(passed), "changes of room": changes}


def trace(python: str) -> None:
    print(f"{'':14}{'rooms':>7}{'files':>7}{'functions':>11}{'changes of room':>17}")
    ways: dict[str, Callable[[], list[str]]] = {
        "stdio": lambda: over_stdio(python),
        "legacy HTTP": lambda: over_http(python, modern=False),
        "modern HTTP": lambda: over_http(python, modern=True),
    }
    for name, take in ways.items():
        found = way(take())
        print(f"{name:14}{found['rooms']:>7}{found['files']:>7}{found['functions']:>11}{found['changes of room']:>17}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["layout", "trace"], default="layout")
    parser.add_argument("--package", type=Path, default=PACKAGE)
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    if given.what == "trace":
        trace(given.python)
        return
    for name, value in measure(given.package.absolute()).items():
        print(f"{name:60}{value:>10}")


if __name__ == "__main__":
    main()
