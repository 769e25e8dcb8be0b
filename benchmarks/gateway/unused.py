"""Memory of a gateway that nobody has used yet, at a first start and at the next.

    python -m benchmarks.gateway.unused [--against FOLDER] [--seconds 22] [--servers 11]

Resident memory of `serve --http`, without its servers, some seconds after it is ready. Modules are compiled before, as
those of an installed package are: a process that compiles them itself keeps some of the memory that this takes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from benchmarks.paths import ECHO_SERVER
from benchmarks.processes import free_port, resident_mb

ROOT = Path(__file__).parents[2]


def measured(checkout: Path, folder: Path, database: str, seconds: float) -> float:
    """Memory of a new gateway, in megabytes."""
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "mcp_optimizer", "serve", "--config", str(folder / "mcp.json")]
    with subprocess.Popen(
        [*command, "--http", f"127.0.0.1:{port}", "--database", str(folder / database)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as gateway:
        try:
            _wait_until_ready(port)
            time.sleep(seconds)
            return resident_mb(gateway.pid)
        finally:
            gateway.terminate()


def _wait_until_ready(port: int) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            if httpx2.get(f"http://127.0.0.1:{port}/ready").status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.2)
    raise SystemExit("the gateway is not ready after two minutes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--seconds", type=float, default=22.0)
    parser.add_argument("--servers", type=int, default=11)
    options = parser.parse_args()
    entry = {"command": sys.executable, "args": [str(ECHO_SERVER)]}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        servers = {f"echo{number}": entry for number in range(options.servers)}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        for at, checkout in enumerate([ROOT, *([options.against] if options.against else [])]):
            measured(checkout, folder, f"compiling-{at}.db", 0)
            first, following = (measured(checkout, folder, f"{at}.db", options.seconds) for _ in range(2))
            print(f"{checkout}: {first:.0f} MB at a first start, {following:.0f} MB at the next", flush=True)


if __name__ == "__main__":
    main()
