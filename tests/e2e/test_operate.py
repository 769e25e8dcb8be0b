"""`restart`, `logs` and `reload` of gateways that are running."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

import pytest

from mcp_optimizer.cli.operate import new_lines
from tests.conftest import WriteServers, plain_server
from tests.e2e.running import WARM, command, gateway_at
from tests.e2e.test_control import ATTEMPTS, asked, until_reached
from tests.waiting import until


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one"), "two": plain_server("two")})


async def test_a_server_is_restarted_and_its_log_says_so(config: Path) -> None:
    async with gateway_at(config):
        await until_reached(config)
        done = await asked("restart", "one", "--config", config, cold=True)
        assert (done.code, "Restarting one" in done.out) == (0, True)

        async def is_logged() -> bool:
            return "restarted" in (await command("logs", "one", "--config", config)).out

        await until(is_logged, timeout=20)
        every = (await asked("logs", "--config", config, "-n", "1", cold=True)).out.splitlines()
        assert [line.partition(":")[0] for line in every] == ["one", "two"]
        unknown = await asked("restart", "three", "--config", config)
        assert (unknown.code, "Servers: one, two." in unknown.err) == (1, True)


async def test_logs_are_followed_until_interrupted(config: Path) -> None:
    async with gateway_at(config):
        await until_reached(config)
        for _ in range(ATTEMPTS):
            if line := await followed(config):
                break
        assert line


async def followed(config: Path) -> bytes:
    """The first line of a log that is followed until then; none if the gateway did not answer within a second."""
    following = await asyncio.create_subprocess_exec(
        *WARM, "logs", "one", "-n", "0", "--follow", "--config", str(config),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, env=dict(os.environ),
    )  # fmt: skip
    assert following.stdout is not None
    line = asyncio.create_task(following.stdout.readline())

    async def is_told() -> bool:
        # Again, because the first may come before it looks.
        await command("restart", "one", "--config", config)
        return line.done()

    await until(is_told, timeout=30)
    with contextlib.suppress(ProcessLookupError):
        following.terminate()
    await following.wait()
    return line.result()


async def test_reload_says_what_changed_and_what_is_wrong(config: Path) -> None:
    async with gateway_at(config, "--no-reload"):
        await until_reached(config)
        config.write_text(json.dumps({"mcpServers": {"one": plain_server("one"), "three": plain_server("three")}}))
        done = await asked("reload", "--config", config, cold=True)
        assert (done.code, done.out.partition(": ")[2]) == (0, "added three; removed two\n")
        config.write_text("{")
        wrong = await asked("reload", "--config", config, "--json")
        assert wrong.code == 1
        assert "not valid JSON" in wrong.json["gateways"][0]["problem"]


@pytest.mark.parametrize("words", [("restart", "one"), ("logs",), ("reload",)], ids=" ".join)
async def test_without_a_gateway_there_is_nothing_to_operate(config: Path, words: tuple[str, ...]) -> None:
    done = await command(*words, "--config", config)
    assert (done.code, done.out) == (1, "")
    assert "No gateway is running" in done.err


def test_new_lines_of_a_log_are_those_after_what_was_seen() -> None:
    assert new_lines([], ["a"]) == ["a"]
    assert new_lines(["a", "b"], ["a", "b", "c"]) == ["c"]
    assert new_lines(["a", "b"], ["b", "c", "d"]) == ["c", "d"]
    assert new_lines(["a", "b"], ["c", "d"]) == ["c", "d"]
    assert new_lines(["a"], ["a"]) == []
    assert new_lines(["x", "x"], ["x", "x", "x"]) == ["x"]
