"""python -m tests.conformance.auth: the suite's auth scenarios for clients, driven through the gateway.

Each scenario starts an MCP server and an authorization server; `auth_client` puts a gateway in front and does what a
user would. Runs all scenarios of both revisions, client credentials both ways, and enterprise-managed authorization
with a caller over HTTP. Fails if one fails that is not a listed exception. With `--if-possible`, prints the reason and
succeeds where npm or Node is not available.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conformance.auth_caller import SCENARIO
from tests.conformance.suite import REVISIONS, ROOT, NotAvailable, get_suite
from tests.warm import WARM_PYTHON, warm

CLIENT = shlex.join([*WARM_PYTHON, "-m", "tests.conformance.auth_client"])
"""A fork of a process that has its imports, which take most of the time of a scenario."""
EXTENSIONS = ("auth/client-credentials-basic", "auth/client-credentials-jwt", SCENARIO)
EXCEPTIONS = Path(__file__).with_name("auth_exceptions.toml")
_LISTED = re.compile(r"- (auth/\S+) \[([^\]]*)\]")
_LIMIT = 120
"""Seconds for what a scenario waits for, one of which starts a gateway from nothing, beside other stages."""
_SECONDS = _LIMIT + 30
_AT_ONCE = 3


def exceptions() -> dict[str, str]:
    """The scenarios that may fail, and why."""
    return dict(tomllib.loads(EXCEPTIONS.read_text(encoding="utf-8")).get("exceptions", {}))


def scenarios(suite: Sequence[str]) -> list[tuple[str, str]]:
    """The revision and name of each scenario."""
    told = subprocess.run([*suite, "list"], capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    listed = {name: revisions.split(",") for name, revisions in _LISTED.findall(told)}
    found = [(revision, name) for revision in REVISIONS for name, known in listed.items() if revision in known]
    return [*found, *((REVISIONS[-1], name) for name in EXTENSIONS if name in listed)]


def failure(suite: Sequence[str], revision: str, name: str) -> str:
    """Why a scenario fails; empty if it passes."""
    version = [] if name in EXTENSIONS else ["--spec-version", revision]
    command = [*suite, "client", "--command", CLIENT, "--scenario", name, *version, "--timeout", str(_LIMIT * 1000)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return f"did not end within {_SECONDS} s"
    told = done.stdout + done.stderr
    if "OVERALL: PASSED" in told:
        return ""
    lines = [line for line in told.splitlines() if "FAILURE" in line or "WARNING" in line]
    return "; ".join(line.strip()[-160:] for line in lines[:3]) or " ".join(told.split())[-300:]


def failures(suite: Sequence[str], wanted: list[tuple[str, str]]) -> dict[str, str]:
    """The scenarios that fail, and why."""
    with warm(), ThreadPoolExecutor(_AT_ONCE) as threads:
        outcomes = list(threads.map(lambda one: failure(suite, *one), wanted))
        # On a busy machine a scenario may run out of time; it is tried once more, alone.
        return {
            f"{revision}/{name}": again
            for (revision, name), why in zip(wanted, outcomes, strict=True)
            if why and (again := failure(suite, revision, name))
        }


def main() -> int:
    try:
        suite = get_suite()
        wanted = scenarios(suite)
    except NotAvailable as problem:
        print(f"conformance of logins: not run, because {problem}")
        return 0 if "--if-possible" in sys.argv else 2
    failed = failures(suite, wanted)
    for revision in REVISIONS:
        names = [name for at, name in wanted if at == revision]
        lost = [name for name in names if f"{revision}/{name}" in failed]
        print(f"{revision}  logins through the gateway: {len(names) - len(lost)} of {len(names)} scenarios pass")
    known = exceptions()
    for name, why in failed.items():
        print(f"{'excepted' if name in known else 'FAILED'}: {name}: {why}")
    return 1 if failed.keys() - known.keys() else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
