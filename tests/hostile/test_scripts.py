"""Hostile scripts, hostile results and hostile clients: none reaches the host, uses it up, or keeps others waiting.

One gateway serves all attempts, with limits that are reached quickly.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mcp_optimizer import Optimizer
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.errors import InvalidRequest, OptimizerError
from mcp_optimizer.scripts.runner import ScriptRunner
from tests.hostile import scripts
from tests.hostile.scripts import FILE, WITNESS

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

MEGABYTE = 1_000_000
LIMITS = {
    "script_cpu_seconds": 0.3,
    "script_seconds": 4.0,
    "script_memory": 32 * MEGABYTE,
    "script_calls": 30,
    "script_argument_bytes": MEGABYTE,
    "script_result_bytes": MEGABYTE,
    "script_output": 100_000,
    "script_error": 1_000,
    "script_workers": 3,
}
SERVER = Path(__file__).parents[1] / "servers" / "giving.py"
ADA, EVE = Caller(key="ada"), Caller(key="eve")
MADE = Path("/tmp/hostile-made")


class Watch:
    """Looks at the event loop and at the workers while scripts run."""

    def __init__(self) -> None:
        self.longest_turn = 0.0
        """Seconds for which the loop computed while others waited for it. In computing time: a machine may be busy."""
        self.most_memory = 0

    async def look(self) -> None:
        never = asyncio.Event()
        while True:
            self.most_memory = max(self.most_memory, *map(_resident, _children()), 0)
            looked = time.thread_time()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), 0.01)
            self.longest_turn = max(self.longest_turn, time.thread_time() - looked)


def _children() -> list[int]:
    """The workers among this process's children."""
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    found = [int(pid) for pid in listed.read_text().split()] if listed.exists() else []
    return [pid for pid in found if "monty" in _command(pid)]


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    return 0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def optimizer() -> AsyncIterator[Optimizer]:
    os.environ["HOSTILE_WITNESS"] = WITNESS
    Path(FILE).write_text(WITNESS)
    servers = {"giving": {"command": sys.executable, "args": [str(SERVER)]}}
    options: dict[str, Any] = {"database": "none", "encoder": "none", "limits": LIMITS, "call_timeout": 30}
    try:
        async with Optimizer.from_config(servers, scripts="read", **options) as optimizer:
            yield optimizer
    finally:
        Path(FILE).unlink(missing_ok=True)
        os.environ.pop("HOSTILE_WITNESS", None)


async def run(
    optimizer: Optimizer, script: str, caller: Caller = EVE, runner: ScriptRunner | None = None, **more: Any
) -> str:
    """What the model reads."""
    runner = runner or optimizer.parts.scripts
    assert runner is not None
    try:
        result = await runner.run(script, caller, **more)
    except OptimizerError as error:
        return str(error)
    return "\n".join(block["text"] for block in result["content"])


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def unchecked(optimizer: Optimizer) -> AsyncIterator[ScriptRunner]:
    """Runs what the check would refuse: the sandbox must hold by itself."""
    runner = ScriptRunner(optimizer.gateway, ScriptMode.READ, optimizer.settings.limits)
    yield runner
    await runner.close()


async def attempted(optimizer: Optimizer, script: str, runner: ScriptRunner | None = None) -> str:
    """Run a hostile script; whatever it says, the host is as before, and others are served."""
    text = await run(optimizer, script, runner=runner)
    assert WITNESS not in text.replace(FILE, "")
    assert Path(FILE).read_text() == WITNESS
    assert not MADE.exists()
    assert len(text) < 60_000
    assert await run(optimizer, "1 + 1", ADA) == "2"
    return text


def _named(attempts: tuple[str, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("script", attempts, ids=[f"{at}" for at in range(len(attempts))])


@_named(scripts.IMPORTS)
async def test_a_script_imports_nothing_of_the_host(optimizer: Optimizer, unchecked: ScriptRunner, script: str) -> None:
    assert "scripts cannot import" in await attempted(optimizer, script)
    assert "ModuleNotFoundError" in await attempted(optimizer, script, unchecked)


@_named(scripts.NAMES)
async def test_a_script_sees_nothing_behind_its_names(optimizer: Optimizer, script: str) -> None:
    assert sys.prefix not in await attempted(optimizer, script)


@_named(scripts.FILES)
async def test_a_script_has_no_files_no_environment_and_no_processes(optimizer: Optimizer, script: str) -> None:
    await attempted(optimizer, script)


@_named(scripts.CODE)
async def test_a_script_gets_nowhere_with_tricks(optimizer: Optimizer, script: str) -> None:
    await attempted(optimizer, script)


@_named(scripts.TOOLS)
async def test_a_script_calls_only_what_it_may(optimizer: Optimizer, script: str) -> None:
    await attempted(optimizer, script)
    assert await run(optimizer, "giving.changes()['changes']", ADA) == "0"


@_named(scripts.ARGUMENTS)
async def test_no_argument_harms_the_gateway(optimizer: Optimizer, script: str) -> None:
    await attempted(optimizer, script)


@_named(scripts.RESULTS)
async def test_no_result_harms_a_script_or_the_gateway(optimizer: Optimizer, script: str) -> None:
    await attempted(
        optimizer, f"try:\n    print(type({script}))\nexcept ToolError as error:\n    print(str(error)[:200])"
    )


@_named(scripts.BOMBS)
async def test_a_bomb_ends_within_its_limits(optimizer: Optimizer, script: str) -> None:
    watch = Watch()
    looking = asyncio.create_task(watch.look())
    started = time.monotonic()
    try:
        await attempted(optimizer, script)
    finally:
        looking.cancel()
    # Its limits are .3 seconds of computing and 4 of all; the rest is for a machine that is busy.
    assert time.monotonic() - started < 15
    assert watch.longest_turn < 1.0
    assert watch.most_memory < 4 * LIMITS["script_memory"] + 50 * MEGABYTE


@_named(scripts.SOURCES)
async def test_no_text_of_a_script_harms_the_parser(optimizer: Optimizer, script: str) -> None:
    await attempted(optimizer, script)


async def test_one_script_finds_nothing_of_another(optimizer: Optimizer, unchecked: ScriptRunner) -> None:
    await run(optimizer, "secret = 'of eve'\njson.secret = secret\ndef call(*a): return secret", EVE, unchecked)
    for _ in range(4):
        assert "'secret' is not defined" in await run(optimizer, "secret", ADA)
        assert "NameError" in await run(optimizer, "secret", ADA, unchecked)
        assert "of eve" not in await run(optimizer, "[json.secret, call('x')]", ADA, unchecked)


async def test_a_server_that_answers_fifty_megabytes_is_an_error_in_the_script(optimizer: Optimizer) -> None:
    text = await run(optimizer, "try:\n    giving.huge(size=50_000_000)\nexcept ToolError as error:\n    print(error)")
    assert "its result has 50,000,000 bytes; a script receives at most 1,000,000" in text


async def test_a_script_whose_server_never_answers_ends_and_keeps_what_it_printed(optimizer: Optimizer) -> None:
    text = await run(optimizer, "print('so far')\ngiving.never()")
    assert text.startswith("The script was ended after 4 seconds.")
    assert text.endswith("It had printed:\nso far")


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.01, 0.05, 0.2])
@pytest.mark.parametrize("script", ["while True: pass", "giving.never()", "parallel('giving.never', [{}] * 20)", "1"])
async def test_a_cancelled_script_is_gone(optimizer: Optimizer, script: str, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await run(optimizer, script)
    assert await run(optimizer, "1 + 1") == "2"


async def test_others_are_served_while_somebody_runs_as_many_scripts_as_they_can(optimizer: Optimizer) -> None:
    flood = [asyncio.create_task(run(optimizer, "giving.never()")) for _ in range(20)]
    started = time.monotonic()
    assert await run(optimizer, "1 + 1", ADA) == "2"
    assert time.monotonic() - started < 3
    found = await optimizer.gateway.call("changes", {}, "giving")
    assert not found.get("isError")
    told = await asyncio.gather(*flood)
    assert sum("Too many scripts are running" in text for text in told) >= 10


# Each limit of docs/limits.md.


async def test_a_longer_script_is_refused(optimizer: Optimizer) -> None:
    assert "at most 20,000 are run" in await run(optimizer, "#" * 20_001)


async def test_a_script_ends_with_its_last_call(optimizer: Optimizer) -> None:
    text = await run(optimizer, "while True: giving.changes()")
    assert text.startswith("The script was ended. A script makes at most 30 calls.\n30 calls were made")


async def test_only_so_many_calls_are_in_progress(optimizer: Optimizer) -> None:
    text = await run(optimizer, "parallel('giving.never', [{}] * 30)")
    # The others wait for one of these, which never comes.
    assert "16 calls were made" in text


async def test_a_script_that_computes_too_long_is_ended(optimizer: Optimizer) -> None:
    text = await run(optimizer, "print('x')\nwhile True: pass")
    assert text.startswith("The script was ended: it computed for more than 0.3 seconds.")
    assert text.endswith("It had printed:\nx")


async def test_a_script_that_needs_too_much_memory_is_ended(optimizer: Optimizer) -> None:
    text = await run(optimizer, "x = ['abc'] * 10**7")
    assert text.startswith("The script was ended: its values need more than 32,000,000 bytes.")


async def test_larger_arguments_are_refused(optimizer: Optimizer) -> None:
    assert "have more than 1,000,000 bytes" in await run(optimizer, "giving.give(result='x' * 1_000_001)")


async def test_results_of_parallel_calls_count_together(optimizer: Optimizer) -> None:
    text = await run(optimizer, "parallel('giving.huge', [{'size': 300_000}] * 5)")
    assert "larger than a script receives at a time" in text


async def test_results_that_a_script_does_not_take_do_not_pile_up(optimizer: Optimizer) -> None:
    # Each is within the limit of one result; together they are more than a script may hold.
    script = (
        "async def f():\n    t = [giving.huge(size=900_000) for _ in range(29)]\n    return await asyncio.gather(*t)"
    )
    text = await run(optimizer, f"{script}\n[len(x) for x in await f()]")
    assert text.startswith("The script was ended"), text
    assert await run(optimizer, "1 + 1") == "2"


async def test_more_output_is_left_out(optimizer: Optimizer) -> None:
    runner = optimizer.parts.scripts
    assert runner is not None
    result = await runner.run("for _ in range(200): print('x' * 1000)", EVE)
    assert sum(len(block["text"]) for block in result["content"]) < 110_000
    assert result["content"][0]["text"].startswith("[More was printed than is kept")


async def test_a_longer_error_is_cut(optimizer: Optimizer) -> None:
    text = await run(optimizer, "raise ValueError('x' * 100_000)")
    assert len(text) < 1_200
    assert text.startswith("line 1: ValueError: xxx")


async def test_a_request_names_only_so_many_tools(optimizer: Optimizer) -> None:
    runner = optimizer.parts.scripts
    assert runner is not None
    with pytest.raises(InvalidRequest, match="at most 50"):
        await runner.run("1", EVE, may_change=["x"] * 51)
