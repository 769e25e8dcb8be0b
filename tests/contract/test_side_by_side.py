"""The processes that run the tests beside each other: together they run every test once, and hide no failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.side_by_side", "--processes", "2", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    return folder


def test_every_test_is_run_once(tmp_path: Path) -> None:
    notes = (
        "import pathlib\n\ndef test_it():\n    with open({place!r}, 'a') as file:\n        file.write('{name}\\n')\n"
    )
    place = str(tmp_path / "ran")
    names = [f"t{number}" for number in range(6)]
    folder = written(tmp_path, **{name: notes.format(place=place, name=name) for name in names})
    done = run(str(folder), "--ignore", str(folder / "test_t3.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(Path(place).read_text().split()) == ["t0", "t1", "t2", "t4", "t5"]


def test_a_failure_is_named_and_shown_and_fails_the_run(tmp_path: Path) -> None:
    folder = written(
        tmp_path, good="def test_it(): pass", bad="def test_this_one():\n    value = 3\n    assert value == 4"
    )
    done = run(str(folder))
    assert done.returncode == 1
    assert "::test_this_one\n" in done.stdout
    assert "assert 3 == 4" in done.stdout


def test_a_file_that_cannot_be_imported_fails_the_run(tmp_path: Path) -> None:
    folder = written(tmp_path, good="def test_it(): pass", bad="import nothing_has_this_name")
    done = run(str(folder))
    assert done.returncode == 1
    assert "No module named 'nothing_has_this_name'" in done.stdout


def test_a_process_that_is_killed_fails_the_run(tmp_path: Path) -> None:
    killed = "import os, signal\n\ndef test_it(): os.kill(os.getpid(), signal.SIGKILL)"
    done = run(str(written(tmp_path, good="def test_it(): pass", bad=killed)))
    assert done.returncode == 1
    assert "ended with code -9" in done.stdout


def test_options_after_the_dashes_are_those_of_pytest(tmp_path: Path) -> None:
    folder = written(tmp_path, two="def test_one(): assert 0\n\ndef test_other(): pass")
    done = run(str(folder), "--", "-k", "other")
    assert done.returncode == 0
    assert "1 passed, 1 deselected" in done.stdout


def test_no_test_at_all_is_no_success(tmp_path: Path) -> None:
    folder = written(tmp_path, two="def test_one(): pass")
    assert run(str(folder), "--", "-k", "other").returncode == 5
    assert run(str(folder / "nothing")).returncode == 1


def test_more_processes_take_the_files_of_programs_and_no_unit_test(tmp_path: Path) -> None:
    opened = "import os\n\ndef test_it():\n    with open({place!r}, 'a') as file:\n"
    notes = opened + "        print('{name}', os.getpid(), file=file)\n"
    place = str(tmp_path / "ran")
    (tmp_path / "unit").mkdir()
    names = [f"t{number}" for number in range(4)]
    for folder in (tmp_path, tmp_path / "unit"):
        written(folder, **{f"{folder.name}{name}": notes.format(place=place, name=folder.name) for name in names})
    done = run("--more", "2", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()[-4:]) == done.stdout.count("\nprocess ") == 4
    ran = [line.split() for line in Path(place).read_text().splitlines()]
    assert len(ran) == 8
    assert len({process for name, process in ran if name == "unit"}) <= 2
