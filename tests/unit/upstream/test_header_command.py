"""Headers from a command: real shells, what they print, and what becomes of those that fail, hang or flood."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_optimizer.config.serverfile.spec import AuthSpec, ServerSpec, Transport
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.upstream.authorization import HeaderCommand
from mcp_optimizer.upstream.transports import processes
from tests.trying import at_most
from tests.waiting import until

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform == "win32", reason="the commands here are for a POSIX shell"),
]

SECRET = "Bearer s3cr3t-t0ken"
PRINTED = json.dumps({"Authorization": SECRET})


@pytest.fixture(autouse=True)
async def nothing_remains() -> AsyncIterator[None]:
    yield
    await processes.release()


def helper(
    command: str, timeout: float = 10, clock: Callable[[], float] = time.monotonic, **more: Any
) -> HeaderCommand:
    auth = AuthSpec(headers_command=command)
    return HeaderCommand(
        ServerSpec("tracker", Transport.HTTP, url="https://example.com/mcp", auth=auth, **more),
        timeout=timeout,
        clock=clock,
    )


def counting(folder: Path, printed: str = '{\\"X-Run\\": \\"%s\\"}') -> str:
    """A command that counts its runs in a file, and prints a text with their number."""
    runs = shlex.quote(str(folder / "runs"))
    return f'echo run >> {runs}; n=$(grep -c run {runs}); printf "{printed}" "$n"'


def runs(folder: Path) -> int:
    path = folder / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_headers_are_what_the_command_prints() -> None:
    assert await helper(f"echo {shlex.quote(PRINTED)}").headers() == {"Authorization": SECRET}


async def test_the_command_learns_which_server_it_is_for_and_gets_the_environment_of_a_child(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OF_THE_GATEWAY", "secret")
    code = "import json, os; print(json.dumps({k.replace('_', '-'): v for k, v in os.environ.items()}))"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    headers = await helper(command, env={"TENANT": "acme"}, cwd=str(tmp_path)).headers()
    assert headers["CLAUDE-CODE-MCP-SERVER-NAME"] == "tracker"
    assert headers["CLAUDE-CODE-MCP-SERVER-URL"] == "https://example.com/mcp"
    assert headers["TENANT"] == "acme"
    assert headers["PATH"] == os.environ["PATH"]
    assert headers["PWD"] == str(tmp_path)
    assert "OF-THE-GATEWAY" not in headers


async def test_the_command_runs_once_for_many_requests(tmp_path: Path) -> None:
    it = helper("sleep 0.2; " + counting(tmp_path))
    assert await asyncio.gather(*(it.headers() for _ in range(20))) == [{"X-Run": "1"}] * 20
    assert await it.headers() == {"X-Run": "1"}


async def test_a_failure_is_that_of_all_who_waited_and_the_next_request_tries_again(tmp_path: Path) -> None:
    it = helper(f"sleep 0.2; {counting(tmp_path)}; exit 3")
    results = await asyncio.gather(*(it.headers() for _ in range(5)), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["UpstreamError"] * 5
    assert runs(tmp_path) == 1
    with pytest.raises(OptimizerError):
        await it.headers()
    assert runs(tmp_path) == 2


async def test_who_is_cancelled_leaves_the_command_to_those_who_wait(tmp_path: Path) -> None:
    began = tmp_path / "began"
    it = helper(f"touch {shlex.quote(str(began))}; sleep 0.2; {counting(tmp_path)}")
    first, second = asyncio.ensure_future(it.headers()), asyncio.ensure_future(it.headers())
    await until(began.exists)
    first.cancel()
    assert await second == {"X-Run": "1"}


@pytest.mark.parametrize(
    ("expires", "kept", "gone"),
    [(', \\"expires_in\\": 300', 299, 301), ("", 3_599, 3_601), (', \\"expires_in\\": 1e9', 3_599, 3_601)],
    ids=["as it says", "an hour without", "an hour at most"],
)
async def test_headers_are_kept_until_they_expire(tmp_path: Path, expires: str, kept: float, gone: float) -> None:
    clock = Clock()
    it = helper(counting(tmp_path, f'{{\\"headers\\": {{\\"X-Run\\": \\"%s\\"}}{expires}}}'), clock=clock)
    begun = clock.now
    assert await it.headers() == {"X-Run": "1"}
    clock.now = begun + kept
    assert await it.headers() == {"X-Run": "1"}
    clock.now = begun + gone
    assert await it.headers() == {"X-Run": "2"}


async def test_after_a_401_the_command_runs_once_more_for_all_who_were_refused(tmp_path: Path) -> None:
    it = helper(counting(tmp_path))
    sent = await it.headers()
    assert await asyncio.gather(*(it.refused(401, "Bearer", sent) for _ in range(10))) == [True] * 10
    assert await it.headers() == {"X-Run": "2"}
    assert await it.refused(401, "Bearer", sent)
    assert runs(tmp_path) == 2


async def test_headers_that_stay_the_same_are_not_worth_another_attempt(tmp_path: Path) -> None:
    clock = Clock()
    it = helper(counting(tmp_path, '{\\"X\\": \\"same\\"}'), clock=clock)
    sent = await it.headers()
    assert not await it.refused(401, "Bearer", sent)
    assert not await it.refused(401, "Bearer", sent)
    assert runs(tmp_path) == 2
    clock.now += 60
    assert not await it.refused(401, "Bearer", sent)
    assert runs(tmp_path) == 3


async def test_other_refusals_have_nothing_to_do_with_the_command(tmp_path: Path) -> None:
    it = helper(counting(tmp_path))
    sent = await it.headers()
    assert not await it.refused(403, "", sent)
    assert runs(tmp_path) == 1


async def test_a_login_is_waited_for_in_vain() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(helper("true").until_login(), 0.05)


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (f"echo {shlex.quote(PRINTED)}; echo {shlex.quote(SECRET)} >&2; exit 3", "ended with exit code 3"),
        (f"echo {shlex.quote(PRINTED)}; kill -9 $$", "was ended by signal 9"),
        ("s3cr3t-t0ken", "ended with exit code 127"),
        (f"echo {shlex.quote(SECRET)}", "printed something else than a JSON object of headers"),
        ("true", "printed something else than a JSON object of headers"),
        (f"echo {shlex.quote(json.dumps([SECRET]))}", "printed something else than a JSON object of headers"),
        (f"echo {shlex.quote(json.dumps({'A': [SECRET]}))}", "something else than a JSON object of headers"),
        (f"echo {shlex.quote(json.dumps({'A': SECRET + chr(10) + 'B: c'}))}", "something else than a JSON object"),
        (f"echo {shlex.quote(json.dumps({SECRET: 'a'}))}", "printed something else than a JSON object of headers"),
        (f"echo {shlex.quote(json.dumps({'headers': {}, 'expires_in': SECRET}))}", '"expires_in" that is not'),
        ("yes s3cr3t-t0ken", "printed more than 64 KB"),
        ("s3cr3t-t0ken \ud800", "was not started"),
    ],
)
async def test_what_is_wrong_is_said_without_what_was_printed(command: str, how: str) -> None:
    with pytest.raises(OptimizerError) as caught:
        await helper(command).headers()
    assert how in str(caught.value)
    assert "'tracker'" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


async def test_a_command_that_reads_gets_the_end_of_its_input_and_may_write_much_to_stderr() -> None:
    command = f"cat; head -c 1000000 /dev/zero >&2; echo {shlex.quote(PRINTED)}"
    assert await helper(command).headers() == {"Authorization": SECRET}


def running(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs Linux' /proc")
async def test_a_command_that_hangs_is_ended_with_its_children() -> None:
    mark = f"marker-{uuid.uuid4().hex}"
    child = f"{shlex.quote(sys.executable)} -c 'import time; time.sleep(60)' {mark}"
    task = asyncio.ensure_future(helper(f"trap '' TERM; {child} & {child}", timeout=0.5).headers())
    await until(lambda: len(running(mark)) >= 2)
    with pytest.raises(OptimizerError, match=r"did not end within 0\.5 s"):
        await task
    await until(lambda: not running(mark), "its children ended")


@settings(max_examples=at_most(15), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    printed=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text() | st.sampled_from(["headers", "expires_in"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_whatever_is_printed_gives_headers_or_a_clear_error(printed: Any, tmp_path: Path) -> None:
    path = tmp_path / "printed"
    path.write_text(json.dumps(printed))

    async def outcome() -> object:
        try:
            return await helper(f"cat {shlex.quote(str(path))}").headers()
        except OptimizerError as error:
            return str(error)
        finally:
            await processes.release()

    found = asyncio.run(outcome())
    if isinstance(found, dict):
        assert all(isinstance(value, str) and value.isprintable() for value in found.values())
    else:
        assert "failed: it printed" in str(found)
