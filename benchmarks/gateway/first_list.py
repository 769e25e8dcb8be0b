"""How soon a new gateway on stdio answers tools/list.

    python -m benchmarks.gateway.first_list [--rounds 5] [--against FOLDER]

Fresh processes with the demo servers: without a database, with a new one, and with one that exists. `--against` names
another checkout, which is measured in turns with this one, so that other load affects both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.paths import alone

ROOT = Path(__file__).parents[2]
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


def environment(checkout: Path) -> dict[str, str]:
    """That of the gateway: modules are compiled once, as those of an installed package are."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **inherited,
        "PYTHONPATH": str(checkout / "src"),
        "PYTHONPYCACHEPREFIX": tempfile.gettempdir() + "/compiled",
    }


def first_list(checkout: Path, database: str) -> float:
    """Seconds from the start of the process to the reply."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "mcp_optimizer", "serve", *alone(checkout), "--demo", "--database", database],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(checkout),
    ) as gateway:
        assert gateway.stdin is not None
        assert gateway.stdout is not None
        for message in (
            {"id": 1, "method": "initialize", "params": HELLO},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/list"},
        ):
            gateway.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        gateway.stdin.flush()
        reply: dict[str, Any] = {}
        while reply.get("id") != 2:
            line = gateway.stdout.readline()
            assert line, f"the gateway of {checkout} ended with {gateway.wait(30)} (database {database})"
            reply = json.loads(line)
        took = time.perf_counter() - began
        assert reply["result"]["tools"], "it lists nothing"
        gateway.stdin.close()
        gateway.wait(30)
    return took


def measured(checkouts: list[Path], rounds: int, folder: Path) -> dict[str, list[list[float]]]:
    """For each database, the times of each checkout."""
    times: dict[str, list[list[float]]] = {name: [[] for _ in checkouts] for name in ("none", "new", "existing")}
    for number in range(rounds):
        for at, checkout in enumerate(checkouts):
            place = str(folder / f"{number}-{at}.db")
            for name, database in (("none", "none"), ("new", place), ("existing", place)):
                times[name][at].append(first_list(checkout, database))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    checkouts = [ROOT, *([options.against] if options.against else [])]
    # Compiles the modules.
    for checkout in checkouts:
        first_list(checkout, "none")
    with tempfile.TemporaryDirectory() as folder:
        times = measured(checkouts, options.rounds, Path(folder))
    print(f"load {os.getloadavg()[0]:.0f}")
    for name, (own, *other) in times.items():
        line = f"{name} database: {statistics.median(own):.2f} s (best {min(own):.2f})"
        if other:
            against = statistics.median(other[0])
            line += (
                f"; the other {against:.2f} s (best {min(other[0]):.2f}); ratio {statistics.median(own) / against:.2f}"
            )
        print(line)


if __name__ == "__main__":
    main()
