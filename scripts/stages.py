"""Runs commands two at a time, shows what each printed, in their order, and fails if one of them failed.

    python scripts/stages.py NAME COMMAND [ARGUMENT ...] [+ NAME COMMAND ...] ...

For `.ci/run`, where many stages wait more than they compute. It knows nothing about what the commands do. No more than
two run at once, because some have time limits of their own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

AT_ONCE = 2
BETWEEN = "+"


@dataclass(frozen=True)
class Stage:
    """A command, and what to call it."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Ended:
    """A stage that ran, or could not be started."""

    stage: Stage
    code: int
    printed: str
    seconds: float


def stages_of(arguments: Sequence[str]) -> Iterator[Stage]:
    """The stages between the separators. One without a command is a mistake, and never a success."""
    rest = list(arguments)
    while rest:
        end = rest.index(BETWEEN) if BETWEEN in rest else len(rest)
        name, *command = rest[:end] or [""]
        if not command:
            raise SystemExit(f"stages: {name!r} has no command\n{__doc__}")
        yield Stage(name, tuple(command))
        rest = rest[end + 1 :]


def run(stage: Stage) -> Ended:
    began = time.monotonic()
    try:
        done = subprocess.run(
            stage.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        code, printed = done.returncode, done.stdout.decode(errors="replace")
    except OSError as error:
        code, printed = 127, f"{error}\n"
    return Ended(stage, code, printed, time.monotonic() - began)


def show(ended: Ended) -> None:
    outcome = "passed" if ended.code == 0 else f"FAILED with code {ended.code}"
    print(f"== {ended.stage.name}: {' '.join(ended.stage.command)}", ended.printed.rstrip(), sep="\n")
    print(f"== {ended.stage.name} {outcome} after {ended.seconds:.0f} s", flush=True)


def main(arguments: Sequence[str]) -> int:
    stages = list(stages_of(arguments))
    if not stages:
        raise SystemExit(f"stages: there is nothing to run\n{__doc__}")
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for ended in threads.map(run, stages):
            show(ended)
            if ended.code:
                failed.append(ended.stage.name)
    if failed:
        print(f"== failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
