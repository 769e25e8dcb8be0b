"""python -m tests.conformance: a check that passes directly must pass through the gateway, in both protocol eras.

Runs the suite against the conformant server directly, then through a gateway in transparent mode, with the server
behind it over HTTP and as a child process. Fails if a check that passes directly fails through the gateway and is not
a listed exception. With `--if-possible`, prints the reason and succeeds where npm or Node is not available. With
`--by-hand`, the ways are others: a server that rests until the first message, and a shared gateway on stdio in between.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.suite import REVISIONS, ROOT, Found, NotAvailable, get_suite, run_suite

SERVER = ROOT / "tests" / "servers" / "conformant.py"
EXCEPTIONS = Path(__file__).with_name("exceptions.toml")
_START_SECONDS = 60
_BY_HAND = ("that rests", "behind a shared gateway")
"""The ways that are tried by hand. The server is a child in both."""


def exceptions() -> dict[str, str]:
    """The checks that may fail through the gateway, and why."""
    return dict(tomllib.loads(EXCEPTIONS.read_text(encoding="utf-8"))["exceptions"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[str], url: str) -> Iterator[None]:
    """Run a process, enter the context once it answers at `url`, and terminate it on exit."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        _wait_for(url, process)
        yield
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"{process.args!r} ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310
                if response.status == 200:
                    return
        except urllib.error.HTTPError as error:
            # A conformant server that is up refuses a plain GET; a gateway that is not ready returns 503.
            if error.code != 503:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"Nothing answers at {url}")


@contextlib.contextmanager
def gateway(folder: Path, entry: dict[str, Any], *, rests: bool = False) -> Iterator[str]:
    """A gateway with one server; `rests`: which it knows from a start before, and starts with the first message."""
    config, database = folder / "mcp.json", str(folder / f"{free_port()}.db") if rests else "none"
    config.write_text(json.dumps({"mcpServers": {"conformant": entry}}), encoding="utf-8")
    port = free_port()
    options = ["--config", str(config), "--http", f"127.0.0.1:{port}", "--mode", "transparent"]
    command = [sys.executable, "-m", "mcp_optimizer", "serve", *options, "--database", database, "--encoder", "none"]
    if rests:
        # A command lists the servers that are not known yet, and stores what it learns.
        tools = [sys.executable, "-m", "mcp_optimizer", "tools", "--config", str(config), "--database", database]
        subprocess.run([*tools, "--encoder", "none"], stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
    with running(command, f"http://127.0.0.1:{port}/ready"):
        yield f"http://127.0.0.1:{port}/mcp"


def ways_in(folder: Path, url: str, *, by_hand: bool) -> dict[str, tuple[dict[str, Any], bool]]:
    """How the server is reached: its entry, and whether it rests at first."""
    child = {"command": sys.executable, "args": [str(SERVER)]}
    if not by_hand:
        return {"over HTTP": ({"url": url}, False), "as a child": (child, False)}
    inner = folder / "inner.json"
    inner.write_text(json.dumps({"mcpServers": {"conformant": child}}), encoding="utf-8")
    options = ["--shared", "--mode", "transparent", "--config", str(inner), "--database", "none", "--encoder", "none"]
    shared = {"command": sys.executable, "args": ["-m", "mcp_optimizer_gateway", "serve", *options]}
    return dict(zip(_BY_HAND, [(child, True), (shared, False)], strict=True))


def lost(direct: Found, through: Found) -> dict[str, str]:
    return {name: through.failed.get(name, "was not run") for name in sorted(direct.passed - through.passed)}


def compare(
    suite: Sequence[str], url: str, folder: Path, known: Collection[str], *, by_hand: bool = False
) -> dict[str, str]:
    """The checks that pass directly but not through the gateway, by revision and name; also those `known`."""
    found: dict[str, str] = {}
    ways = ways_in(folder, url, by_hand=by_hand)
    for revision in REVISIONS:
        direct = run_suite(suite, url, revision)
        print(f"{revision}  directly: {len(direct.passed)} checks pass, {len(direct.failed)} do not", flush=True)
        for way, (entry, rests) in ways.items():
            with gateway(folder, entry, rests=rests) as through_url:
                through = run_suite(suite, through_url, revision)
                missing = named(lost(direct, through), revision, way)
                if missing.keys() - set(known):
                    # Some checks allow a server only 1.5 seconds, which may be too short on a busy machine.
                    again = named(lost(direct, run_suite(suite, through_url, revision)), revision, way)
                    missing = {name: why for name, why in again.items() if name in missing}
            print(f"{revision}  through the gateway, server {way}: {len(through.passed)} pass, {len(missing)} lost")
            found |= missing
    return found


def named(checks: dict[str, str], revision: str, way: str) -> dict[str, str]:
    return {f"{revision}/{name} (server {way})": why for name, why in checks.items()}


def main() -> int:
    try:
        suite = get_suite()
    except NotAvailable as problem:
        print(f"conformance: not run, because {problem}")
        return 0 if "--if-possible" in sys.argv else 2
    port, known = free_port(), exceptions()
    known |= {name.replace("as a child", way): why for way in _BY_HAND for name, why in known.items()}
    url = f"http://127.0.0.1:{port}/mcp"
    with tempfile.TemporaryDirectory() as folder, running([sys.executable, str(SERVER), "--http", str(port)], url):
        found = compare(suite, url, Path(folder), known, by_hand="--by-hand" in sys.argv)
    for name, why in found.items():
        print(f"{'excepted' if name in known else 'LOST'}: {name}: {why}")
    return 1 if found.keys() - known.keys() else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
