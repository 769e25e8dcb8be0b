"""The stages of CI: all of them run, what they print stays in order, and one that fails fails the run by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, str(ROOT / "scripts" / "stages.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_stages_that_pass_are_shown_in_their_order_whichever_ends_first(tmp_path: Path) -> None:
    # The first ends only when the second, which runs beside it, has made a file.
    waits = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\nprint('one')"
    makes = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch(); print('two')"
    file = str(tmp_path / "made")
    done = run("first", PYTHON, "-c", waits, file, "+", "second", PYTHON, "-c", makes, file)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line for line in done.stdout.splitlines() if line in ("one", "two") or " passed after " in line]
    assert [line.split(" after ")[0] for line in lines] == ["one", "== first passed", "two", "== second passed"]


def test_a_stage_that_fails_is_named_and_the_others_run_all_the_same() -> None:
    breaks = "import sys; print('it broke'); sys.exit(3)"
    done = run("bad", PYTHON, "-c", breaks, "+", "gone", "/no/such/program", "+", "good", PYTHON, "-c", "print('fine')")
    assert (done.returncode, done.stderr) == (1, "== failed: bad, gone\n")
    assert "it broke\n== bad FAILED with code 3" in done.stdout
    assert "== gone FAILED with code 127" in done.stdout
    assert "fine\n== good passed" in done.stdout


def test_a_stage_that_is_killed_fails() -> None:
    done = run("killed", PYTHON, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (done.returncode, done.stderr) == (1, "== failed: killed\n")


def test_no_stage_and_a_stage_without_a_command_are_mistakes() -> None:
    for arguments in ([], ["lonely"], ["one", PYTHON, "-c", "0", "+", "lonely"], ["+", "one", PYTHON]):
        done = run(*arguments)
        assert done.returncode == 1
        assert "stages: " in done.stderr
