"""A fork of a warm process is, for whoever starts it, the same as a new process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.running import COMMAND, WARM, Finished, command
from tests.waiting import until
from tests.warm import WARM_PYTHON

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks on Linux only")

SCRIPT = """
import atexit, json, os, sys
atexit.register(lambda: print("at exit"))
print(json.dumps([__name__, sys.argv, sys.path[0], os.getcwd(), os.environ.get("MINE"), sys.stdin.read()]), flush=True)
print("said", file=sys.stderr)
sys.exit(7)
"""
ENDS = {
    "of itself": "print('unflushed')",
    "with a thread at work": "import threading; threading.Timer(0.2, lambda: print('late')).start()",
    "with a reason": "import sys; sys.exit('a reason')",
    "with a failure": "raise ValueError('a failure')",
    "with a negative code": "import sys; sys.exit(-1)",
    "without a code": "import sys; sys.exit()",
}
WAITING = """
import os, time
print(os.getpid(), flush=True)
time.sleep(60)
"""


async def run(program: Sequence[object], folder: Path, given: bytes = b"") -> Finished:
    process = await asyncio.create_subprocess_exec(
        *map(str, program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "MINE": "own"},
    )
    out, err = await asyncio.wait_for(process.communicate(given), 30)
    return Finished(process.returncode or 0, out.decode(), err.decode())


async def test_a_script_has_its_own_arguments_streams_folder_and_end(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = await run([*WARM_PYTHON, script, "a", "b c"], Path("/"), b"what is typed")
    cold = await run([sys.executable, script, "a", "b c"], Path("/"), b"what is typed")
    assert done == cold
    assert (done.code, done.err) == (7, "said\n")
    assert json.loads(done.out.splitlines()[0])[-2:] == ["own", "what is typed"]
    assert done.out.endswith("at exit\n")


@pytest.mark.parametrize("how", ENDS)
async def test_a_script_ends_as_it_would_alone(how: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import atexit; atexit.register(print, 'at exit'); {ENDS[how]}")
    warm, cold = [await run([*python, script], tmp_path) for python in (WARM_PYTHON, [sys.executable])]
    assert (warm.code, warm.out) == (cold.code, cold.out)
    assert warm.err.splitlines()[-1:] == cold.err.splitlines()[-1:]


async def test_a_signal_reaches_the_script_and_its_end_is_passed_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WAITING)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        process = await asyncio.create_subprocess_exec(*WARM_PYTHON, script, stdout=-1, stderr=-3)
        assert process.stdout is not None
        pid = int(await process.stdout.readline())
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 10) == -number
        await until(partial(has_ended, pid))


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


async def test_commands_say_the_same_as_those_with_their_own_imports(tmp_path: Path) -> None:
    for arguments in (["--help"], ["nonsense"]):
        warm, cold = await asyncio.gather(run([*WARM, *arguments], tmp_path), run([*COMMAND, *arguments], tmp_path))
        assert warm == cold
    assert (await command("--version")).out == (await command("--version", cold=True)).out


async def test_processes_that_are_ended_at_any_moment_harm_no_other(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WAITING)

    async def ended_after(delay: float, number: signal.Signals) -> int:
        process = await asyncio.create_subprocess_exec(*WARM_PYTHON, script, stdout=-1, stderr=-3)
        asyncio.get_running_loop().call_later(delay, process.send_signal, number)
        return await asyncio.wait_for(process.wait(), 20)

    numbers = (signal.SIGTERM, signal.SIGKILL)
    codes = await asyncio.gather(*(ended_after(step * 0.01, number) for step in range(15) for number in numbers))
    assert codes == [-number for _ in range(15) for number in numbers]
    assert (await command("--version")).code == 0
