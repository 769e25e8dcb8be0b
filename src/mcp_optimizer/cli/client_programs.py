"""Programs that `connect` names or runs: this one, as a client starts it, and clients' own commands."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SECONDS_OF_A_COMMAND = 60


def this_program() -> list[str]:
    """This program, as a client can start it from any folder."""
    ending = ".exe" if sys.platform == "win32" else ""
    beside = Path(sys.executable).absolute().with_name(f"mcp-optimizer{ending}")
    if beside.is_file():
        return [str(beside)]
    if found := shutil.which("mcp-optimizer"):
        return [str(Path(found).absolute())]
    return [str(Path(sys.executable).absolute()), "-P", "-m", "mcp_optimizer"]


def run_client(words: Sequence[str]) -> str:
    """Run a client's command; what went wrong, if anything. Its output may quote its file, so it is not shown."""
    shown = shlex.join(words[:3])
    program = shutil.which(words[0]) or words[0]
    try:
        ended = subprocess.run(
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS_OF_A_COMMAND,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"`{shown}` did not end within {_SECONDS_OF_A_COMMAND} s, so the file was edited"
    except OSError as error:
        return f"`{shown}` could not be started ({error.strerror}), so the file was edited"
    return f"`{shown}` failed with code {ended.returncode}, so the file was edited" if ended.returncode else ""
