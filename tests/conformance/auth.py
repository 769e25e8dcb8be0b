"""python -m tests.conformance.auth: the suite's auth scenarios for clients, driven through the gateway.

Each scenario starts an MCP server and an authorization server; `auth_client` puts a gateway in front and does what a
user would. Runs all scenarios of both revisions, client credentials both ways, and enterprise-managed authorization
with a caller over HTTP, and some of the others also with such a caller, who logs in for itself; `--caller` runs all of
them that way. Fails if one fails that is not a listed exception. With `--if-possible`, prints the reason and succeeds
where npm or Node is not available.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.auth_caller import SCENARIO
from tests.conformance.suite import REVISIONS, ROOT, NotAvailable, get_suite
from tests.warm import PASSED_ON, WARM_PYTHON, warm

CLIENT = shlex.join([*WARM_PYTHON, "-m", "tests.conformance.auth_client"])
"""A fork of a process that has its imports, which take most of the time of a scenario."""
EXTENSIONS = ("auth/client-credentials-basic", "auth/client-credentials-jwt", SCENARIO)
BY_CALLER = (
    ("2025-11-25", "auth/scope-step-up"),
    ("2026-07-28", "auth/scope-step-up"),
    ("2026-07-28", "auth/authorization-server-migration"),
    ("2026-07-28", "auth/iss-wrong-issuer"),
)
"""What a caller does, too, whenever the others run: in both eras, a call that needs more, and an issuer that lies."""
EXCEPTIONS = Path(__file__).with_name("auth_exceptions.toml")
_LISTED = re.compile(r"- (auth/\S+) \[([^\]]*)\]")
_LIMIT = 120
"""Seconds for what a scenario waits for, one of which starts a gateway from nothing, beside other stages."""
_SECONDS = _LIMIT + 30
_AT_ONCE = 3


@dataclass(frozen=True)
class Run:
    """One scenario, by the user of a gateway or by a caller over HTTP with a login of its own."""

    revision: str
    scenario: str
    by_caller: bool = False

    def __str__(self) -> str:
        return f"{self.revision}/{self.scenario}{' (a caller)' if self.by_caller else ''}"


def exceptions() -> dict[str, str]:
    """The scenarios that may fail, and why."""
    return dict(tomllib.loads(EXCEPTIONS.read_text(encoding="utf-8")).get("exceptions", {}))


def scenarios(suite: Sequence[str], *, by_caller: bool) -> list[Run]:
    """All of them, one way or the other, and those that always run both ways."""
    told = subprocess.run([*suite, "list"], capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    listed = {name: revisions.split(",") for name, revisions in _LISTED.findall(told)}
    found = [(revision, name) for revision in REVISIONS for name, known in listed.items() if revision in known]
    found += [(REVISIONS[-1], name) for name in EXTENSIONS if name in listed]
    if by_caller:
        return [Run(*one, by_caller=True) for one in found]
    return [*(Run(*one) for one in found), *(Run(*one, by_caller=True) for one in BY_CALLER if one in found)]


def failure(suite: Sequence[str], run: Run) -> str:
    """Why a scenario fails; empty if it passes."""
    version = [] if run.scenario in EXTENSIONS else ["--spec-version", run.revision]
    client = f"{CLIENT} --caller" if run.by_caller else CLIENT
    command = [*suite, "client", "--command", client, "--scenario", run.scenario, *version]
    command += ["--timeout", str(_LIMIT * 1000)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return f"did not end within {_SECONDS} s"
    told = done.stdout + done.stderr
    if "OVERALL: PASSED" in told:
        return ""
    lines = [line for line in told.splitlines() if "FAILURE" in line or "WARNING" in line or "no login" in line]
    return "; ".join(line.strip()[-160:] for line in lines[:3]) or " ".join(told.split())[-300:]


def failures(suite: Sequence[str], wanted: list[Run]) -> dict[Run, str]:
    """The scenarios that fail, and why."""
    with warm(), ThreadPoolExecutor(_AT_ONCE) as threads:
        outcomes = list(threads.map(lambda one: failure(suite, one), wanted))
        # On a busy machine a scenario may run out of time; it is tried once more, alone.
        return {run: again for run, why in zip(wanted, outcomes, strict=True) if why and (again := failure(suite, run))}


def main() -> int:
    try:
        suite = get_suite()
        wanted = scenarios(suite, by_caller="--caller" in sys.argv)
    except NotAvailable as problem:
        print(f"conformance of logins: not run, because {problem}")
        return 0 if "--if-possible" in sys.argv else 2
    failed = failures(suite, wanted)
    for by_caller, revision in itertools.product((False, True), REVISIONS):
        runs = [run for run in wanted if run.revision == revision and run.by_caller == by_caller]
        passed = len(runs) - len(failed.keys() & set(runs))
        whose = "logins of a caller over HTTP" if by_caller else "logins through the gateway"
        if runs:
            print(f"{revision}  {whose}: {passed} of {len(runs)} scenarios pass")
    known = exceptions()
    for run, why in failed.items():
        print(f"{'excepted' if str(run) in known else 'FAILED'}: {run}: {why}")
    return 1 if {str(run) for run in failed} - known.keys() else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    # The gateways that clients start are forks of the same process as the clients.
    os.environ[PASSED_ON] = WARM_PYTHON[-1]
    sys.exit(main())
