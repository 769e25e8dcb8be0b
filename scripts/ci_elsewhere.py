"""What is checked on macOS and Windows, where .ci/run, which needs bash and Linux, cannot be: the wheel and unit tests.

    python scripts/ci_elsewhere.py

Builds the wheel, installs it in every way, and uses it there; then the quick unit tests, in a virtual environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ["tests/unit/cli", "tests/unit/config", "tests/unit/search", "tests/unit/compression", "tests/unit/domain"]
"""Rooms with branches for other systems, and those that every system shares."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt", "--editable", ".[dev]"]
        for command in (
            install,
            [python, "scripts/try_wheel.py"],
            [python, "scripts/try_installs.py", "--if-possible"],
            [python, "-m", "pytest", "-m", "not slow and not process", "--hypothesis-profile", "quick", *PARTS],
        ):
            print("$", *command, flush=True)
            if done := subprocess.run(command, cwd=ROOT, check=False).returncode:
                sys.exit(done)


if __name__ == "__main__":
    main()
