"""python -m tests.conformance.extensions: the suite's scenarios for tasks and skills, directly and through the gateway.

Runs each scenario against the server with extensions over HTTP, then through a gateway in transparent mode with that
server over HTTP and as a child process. Fails if a check that passes directly fails through the gateway and is not a
listed exception. With `--if-possible`, prints the reason and succeeds where npm or Node is not available.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conformance.__main__ import EXCEPTIONS, free_port, gateway, lost, running
from tests.conformance.suite import ROOT, Found, NotAvailable, get_suite, read_results

SERVER = ROOT / "tests" / "servers" / "extended.py"
SCENARIOS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
    "sep-2640-skills-directory",
    "sep-2640-skills-enumeration",
    "sep-2640-skills-manifest",
)
_SECONDS = 120


def exceptions() -> dict[str, str]:
    """The checks that may fail through the gateway, and why."""
    return dict(tomllib.loads(EXCEPTIONS.read_text(encoding="utf-8"))["extensions"])


def run(suite: Sequence[str], url: str) -> Found:
    """Run every scenario."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["server", "--url", url, "--scenario", scenario, "-o", folder]
            done = subprocess.run(
                [*suite, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=folder
            )
            try:
                found = read_results(Path(folder))
            except NotAvailable:
                # A scenario whose checks are all skipped passes none.
                if "--verbose" in sys.argv:
                    print(f"{scenario}: no check passed\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
                continue
        passed |= found.passed
        failed |= found.failed
    return Found(frozenset(passed), failed)


def main() -> int:
    try:
        suite = get_suite()
    except NotAvailable as problem:
        print(f"conformance of extensions: not run, because {problem}")
        return 0 if "--if-possible" in sys.argv else 2
    port, known, found = free_port(), exceptions(), dict[str, str]()
    url = f"http://127.0.0.1:{port}/mcp"
    ways: dict[str, dict[str, Any]] = {
        "over HTTP": {"url": url},
        "as a child": {"command": sys.executable, "args": [str(SERVER)]},
    }
    with tempfile.TemporaryDirectory() as folder, running([sys.executable, str(SERVER), "--http", str(port)], url):
        direct = run(suite, url)
        print(f"directly: {len(direct.passed)} checks pass, {len(direct.failed)} do not", flush=True)
        for name, why in direct.failed.items():
            print(f"  fails directly: {name}: {why}")
        for way, entry in ways.items():
            with gateway(Path(folder), entry) as through_url:
                through = run(suite, through_url)
                missing = {f"{name} (server {way})": why for name, why in lost(direct, through).items()}
            print(f"through the gateway, server {way}: {len(through.passed)} pass, {len(missing)} lost", flush=True)
            found |= missing
    for name, why in found.items():
        print(f"{'excepted' if name in known else 'LOST'}: {name}: {why}")
    return 1 if found.keys() - known.keys() else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
