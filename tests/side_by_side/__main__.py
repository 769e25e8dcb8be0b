"""Runs test files in several processes of pytest: names tests as they fail, and then shows all that is said of them.

    python -m tests.side_by_side [--processes N] [--more N] [--ignore PATH ...] PATH ... [-- OPTION OF PYTEST ...]

Each process takes the next file. Those that wait for programs come before all others, and large ones before small ones,
so that no process is left alone with one at the end. Tests of programs wait for a third of their time: more processes
take their files, and end with the last of these. One process runs all contract tests, which share what they read.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.side_by_side.turns import LIST, failed_tests

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "tests" / "contract"
MEMORY = Path("/dev/shm")
ENOUGH_MEMORY = 4 * 2**30
PASSED, FAILED, NO_TESTS = 0, 1, 5
"""What pytest ends with. A process has no tests if the others were quicker."""


@dataclass(frozen=True)
class Runner:
    """A process of pytest, and the file that it prints into."""

    process: subprocess.Popen[bytes]
    printed: Path

    @property
    def code(self) -> int:
        return PASSED if self.process.returncode == NO_TESTS else self.process.returncode

    def said(self) -> str:
        return self.printed.read_text(errors="replace").rstrip()

    def last_line(self) -> str:
        end = "" if self.code in (PASSED, FAILED) else f"ended with code {self.code}, after "
        return end + (self.said().splitlines() or ["nothing was printed"])[-1].strip("= ")


def test_files(paths: Sequence[str], ignored: Sequence[str]) -> list[str]:
    """All files of tests below the paths: those of programs first, then the largest first."""
    left_out = [ROOT / path for path in ignored]
    found = {file for path in paths for file in files_below(ROOT / path)}
    wanted = [file for file in found if not any(file.is_relative_to(path) for path in left_out)]
    return [str(file) for file in sorted(wanted, key=lambda file: ("unit" in file.parts, -file.stat().st_size, file))]


def turns_of(files: Sequence[str]) -> list[list[str]]:
    contract = [file for file in files if Path(file).parent == CONTRACT]
    return [contract] * bool(contract) + [[file] for file in files if file not in contract]


def turns_with_programs(turns: Sequence[Sequence[str]]) -> int:
    """How many turns come before those of unit tests; none if these are contract tests only, which start none."""
    count = sum("unit" not in Path(files[0]).parts for files in turns)
    return 0 if all(Path(files[0]).parent == CONTRACT for files in turns[:count]) else count


def files_below(path: Path) -> list[Path]:
    if not path.exists():
        raise SystemExit(f"side_by_side: there is no {path}")
    return list(path.rglob("test_*.py")) if path.is_dir() else [path]


def quick_folder() -> str | None:
    """In memory, where there is enough and programs may lie there: tests wait longer for a disk than they compute."""
    try:
        facts = os.statvfs(MEMORY)
    except (OSError, AttributeError):
        return None
    fits = facts.f_bavail * facts.f_frsize >= ENOUGH_MEMORY and not facts.f_flag & os.ST_NOEXEC
    return str(MEMORY) if fits and os.access(MEMORY, os.W_OK) else None


def started(folder: Path, number: int, until: int, options: Sequence[str], variables: dict[str, str]) -> Runner:
    printed = folder / f"{number}.txt"
    plugins = ["-p", "no:xdist", "-p", "no:cacheprovider", "-p", "tests.side_by_side.turns"]
    turns = [f"--turns={folder}", f"--until={until}"]
    command = [sys.executable, "-m", "pytest", f"--rootdir={ROOT}", *plugins, *turns, *options]
    with printed.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    return Runner(process, printed)


def watch(folder: Path, runners: Sequence[Runner], turns: int) -> None:
    """Until all have ended, say which tests fail, and how far they are."""
    named, tenths, are_running = 0, 0, True
    while are_running:
        for runner in runners:
            with suppress(subprocess.TimeoutExpired):
                runner.process.wait(0.1)
        are_running = any(runner.process.returncode is None for runner in runners)
        for test in failed_tests(folder)[named:]:
            print(f"FAILED {test}", flush=True)
            named += 1
        taken = sum(1 for _ in folder.glob("*.taken"))
        if taken * 10 // turns > tenths:
            tenths = taken * 10 // turns
            print(f"{tenths * 10} %", flush=True)


def summary(runners: Sequence[Runner]) -> Iterator[str]:
    for runner in runners:
        if runner.code != PASSED:
            yield runner.said()
    for number, runner in enumerate(runners, 1):
        yield f"process {number}: {runner.last_line()}"


def run(turns: Sequence[Sequence[str]], processes: int, more: int, options: Sequence[str]) -> int:
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="tests-")))
        (folder / LIST).write_text(json.dumps(turns))
        variables = dict(os.environ)
        if place := quick_folder():
            variables["TMPDIR"] = ends.enter_context(tempfile.TemporaryDirectory(prefix="t-", dir=place))
            # A PostgreSQL that root starts runs as another user, who reaches its own folder in here.
            os.chmod(variables["TMPDIR"], 0o701)
        runners = []
        before_units = turns_with_programs(turns)
        ends_of_turns = [len(turns)] * processes + [before_units] * (more if before_units else 0)
        for number, until in enumerate(ends_of_turns[: len(turns)]):
            runner = started(folder, number, until, options, variables)
            ends.callback(runner.process.wait)
            # Does nothing to one that has ended.
            ends.callback(runner.process.send_signal, signal.SIGINT)
            runners.append(runner)
        watch(folder, runners, len(turns))
        print(*summary(runners), sep="\n")
    if all(runner.process.returncode == NO_TESTS for runner in runners):
        return NO_TESTS
    return FAILED if any(runner.code != PASSED for runner in runners) else PASSED


def main(arguments: Sequence[str]) -> int:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m tests.side_by_side")
    parser.add_argument("--processes", type=int, help="one more than there are cores, if it is not said")
    parser.add_argument(
        "--more", type=int, help="processes that take only files of programs: as many as cores, or none"
    )
    parser.add_argument("--ignore", action="append", default=[], metavar="PATH")
    parser.add_argument("paths", nargs="+")
    wanted = parser.parse_args(arguments[:end])
    cores = os.cpu_count() or 1
    more = cores if wanted.processes is None and wanted.more is None else wanted.more or 0
    files = test_files(wanted.paths, wanted.ignore)
    if not files:
        raise SystemExit("side_by_side: there is no test file in these folders")
    # Those who stop this program, stop the tests.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return run(turns_of(files), wanted.processes or cores + 1, more, arguments[end + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
