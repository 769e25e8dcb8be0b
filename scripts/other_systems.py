"""Reads the program as macOS and Windows do, as far as types say it: no name of the standard library that they lack.

    python scripts/other_systems.py

`mypy` knows which parts of the standard library each system has, and which branches it never takes. Modules that a
system without sockets of a user never enters may use what Windows lacks.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SYSTEMS = ("darwin", "win32")
NOT_ON_WINDOWS = {
    "src/mcp_optimizer/app/control/gateway_client.py",
    "src/mcp_optimizer/app/control/listener.py",
    "src/mcp_optimizer/cli/serve_shared.py",
    "src/mcp_optimizer/cli/workers.py",
    "src/mcp_optimizer/runtime/sharing/client_process.py",
    "src/mcp_optimizer/runtime/sharing/journal.py",
    "src/mcp_optimizer/runtime/sharing/places.py",
    "src/mcp_optimizer/runtime/sharing/wire.py",
    "src/mcp_optimizer/upstream/transports/orphans.py",
}
"""Entered only where `CAN_CONTROL` holds, after `--workers` was found to be possible, or by the watcher of children."""


def main() -> None:
    found = {system: _errors(system) for system in SYSTEMS}
    wrong = [f"{system}: {line}" for system, lines in found.items() for line in lines if not _is_expected(system, line)]
    unneeded = NOT_ON_WINDOWS - {_file(line) for line in found["win32"]}
    if wrong or unneeded:
        sys.exit("\n".join([*wrong, *(f"{file} works on Windows: it need not be excepted" for file in unneeded)]))
    print(f"Nothing in {' and '.join(SYSTEMS)} that they lack, outside of {len(NOT_ON_WINDOWS)} modules.")


def _is_expected(system: str, line: str) -> bool:
    return system == "win32" and _file(line) in NOT_ON_WINDOWS


def _errors(system: str) -> list[str]:
    cache = f"--cache-dir={ROOT / '.mypy_cache' / system}"
    options = [f"--platform={system}", cache, "--no-error-summary", "--no-warn-unreachable"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "src"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        sys.exit(done.stdout + done.stderr)
    return [line for line in done.stdout.splitlines() if ": error: " in line]


def _file(line: str) -> str:
    return line.partition(":")[0].replace("\\", "/")


if __name__ == "__main__":
    main()
