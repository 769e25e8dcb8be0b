"""Starts servers as child processes, and ends them and everything they started, even if we are killed.

Each child leads its own process group and has a mark in its environment. A watcher process (`orphans`) holds the other
end of a pipe; when the pipe closes, it ends what is left. Called by `stdio`, which talks to the children, and by
`authorization`; the pool releases the watcher when it stops. Windows has neither groups nor a watcher: there a child
is ended with everything below it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.runtime.line_reader import LineReader
from mcp_optimizer.runtime.passed_variables import DEPTH_VARIABLE, is_passed
from mcp_optimizer.upstream.diagnostics import CommandNotFound
from mcp_optimizer.upstream.transports import orphans

logger = logging.getLogger(__name__)

DEEPEST = 2
"""How many gateways a gateway may be nested in. One behind another is useful; more are probably a loop."""

EOF_GRACE = 0.7
"""Seconds for a child to end after its stdin closes. The three graces together fit into the time for shutdown."""
TERM_GRACE = 0.5
"""Seconds for it to end after SIGTERM."""
_KILL_GRACE = 0.3
"""Seconds for the system to clear away a killed child."""

_POLL = 0.01
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_TREE_SECONDS = 2.0
"""Seconds for Windows to end a child and what is below it."""

_NO_FILES = (errno.EMFILE, errno.ENFILE, -1)
"""Error numbers of a process start if no more files may be opened; -1 is uvloop's."""

_UNREAD = 64 * 1024
"""Buffer limit for a child's output, in bytes; at twice as many unread bytes, reading from the pipe pauses."""

_RELEASE = 1.0
"""Seconds for the watcher to end processes that children left behind."""


def child_environment(
    configured: Mapping[str, str], ours: Mapping[str, str], *, network: bool = True
) -> dict[str, str]:
    """A child's environment: the variables that its entry configures, and of ours only those that any process needs to
    run and, with `network`, to reach the network.
    """
    needed = {
        name: value for name, value in ours.items() if is_passed(name, network=network) and not value.startswith("()")
    }
    return needed | dict(configured)


def depth(environment: Mapping[str, str]) -> int:
    """How many gateways we are nested in."""
    said = environment.get(DEPTH_VARIABLE, "")
    return int(said) if said.isdecimal() and len(said) < 4 else 0


class _Pipes(asyncio.subprocess.SubprocessStreamProtocol):
    """asyncio's pipes, but with a `LineReader` for the child's stdout, which passes on lines as they arrive."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # uvloop's transport is not one of asyncio's classes.
        stdout = cast("asyncio.SubprocessTransport", transport).get_pipe_transport(1)
        assert stdout is not None
        self.stdout = LineReader(_UNREAD)
        self.stdout.set_transport(stdout)


class PipedProcess(asyncio.subprocess.Process):
    """A process whose pipes can be closed even if a process that it started still holds their other ends."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipes: _Pipes, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport, pipes, loop)
        self._handle = transport

    def close(self) -> None:
        self._handle.close()


async def spawn(spec: ServerSpec, *, network: bool = True) -> PipedProcess:
    """Start a server with pipes; the caller must `end` it. Raises OSError with advice for the user."""
    environment = child_environment(spec.env, os.environ, network=network)
    executable = shutil.which(spec.command, path=environment.get("PATH"))
    if executable is None:
        raise CommandNotFound(
            f"the command {spec.command!r} was not found; install it, or set its full path in the server file"
        )
    if spec.cwd is not None and not os.path.isdir(spec.cwd):
        raise FileNotFoundError(f"its folder {spec.cwd} does not exist")
    # Our variables come last: a server file must not be able to hide its servers from the watcher, or our depth.
    environment |= {DEPTH_VARIABLE: str(depth(os.environ) + 1)}
    mark, loop = _watch.expect(), asyncio.get_running_loop()
    try:
        transport, pipes = await loop.subprocess_exec(
            lambda: _Pipes(_UNREAD, loop),
            executable,
            *spec.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment | {orphans.VARIABLE: mark},
            cwd=spec.cwd,
            # Its own process group, so its children end with it and Ctrl-C at our terminal reaches only us.
            start_new_session=sys.platform != "win32",
        )
    except OSError as error:
        _watch.forget(mark)
        raise OSError(error.errno, _why_not(error)) from error
    except BaseException:
        _watch.forget(mark)
        raise
    process = PipedProcess(transport, pipes, loop)
    _watch.began(process.pid, mark)
    return process


def _why_not(error: OSError) -> str:
    """Why a process could not be started, for the user."""
    if error.errno not in _NO_FILES:
        return f"it cannot be started: {error.strerror or error}"
    limit = ""
    if sys.platform != "win32":
        import resource

        limit = f" than {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,}"
    return (
        f"it cannot be started, because the gateway may not open more files{limit}; raise that limit (`ulimit -n`), "
        "or use fewer servers"
    )


async def end(process: PipedProcess, grace: float = EOF_GRACE) -> None:
    """End a child: close its stdin, as the protocol prescribes, then send SIGTERM and SIGKILL to its whole group."""
    assert process.stdin is not None
    try:
        with contextlib.suppress(OSError, RuntimeError):
            process.stdin.close()
        if not await ended(process, grace):
            _signal_group(process.pid, signal.SIGTERM)
            await ended(process, TERM_GRACE)
    finally:
        # Even if we are cancelled here: a remaining process would outlive us and hold its pipes open.
        _signal_group(process.pid, _KILL)
        _watch.ended(process.pid)
    await ended(process, _KILL_GRACE)
    process.close()


async def ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Wait for a process; returns whether it ended in time. Not `process.wait()`, which also waits for pipes that a
    grandchild may hold.
    """
    deadline = time.monotonic() + seconds
    while process.returncode is None:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL)
    return True


def _signal_group(group: int, number: signal.Signals) -> None:
    """Signal a child and what it started; on Windows, which cannot ask a process to end, they are ended."""
    if sys.platform == "win32":
        _end_tree(group)
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def _end_tree(process: int) -> None:
    # By its full path: Windows looks for a program in the current folder first. `npx` is a script there whose child is
    # the server, so ending only the child would leave the server.
    program = Path(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "taskkill.exe")
    null = subprocess.DEVNULL
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = [str(program), "/T", "/F", "/PID", str(process)]
        subprocess.run(command, stdin=null, stdout=null, stderr=null, timeout=_TREE_SECONDS, check=False)


class _Watch:
    """Our connection to the watcher, which is started with the first child, notified of every child, and released after
    the last.

    One per process, however many gateways it contains. Nothing waits for the watcher to start: messages stay in the
    pipe until then. Without a watcher, children are still ended on normal shutdown.
    """

    def __init__(self) -> None:
        self._gateway = ""
        self._numbers = 0
        self._expected: set[str] = set()
        self._groups: dict[int, str] = {}
        self._pipe: int | None = None
        self._starting: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def expect(self) -> str:
        """Note that a child is about to be started; returns its mark."""
        if self._pipe is None and sys.platform != "win32":
            self._start()
        self._numbers += 1
        mark = f"{self._gateway}.{self._numbers}"
        self._expected.add(mark)
        return mark

    def forget(self, mark: str) -> None:
        """Note that the child with this mark could not be started."""
        self._expected.discard(mark)

    def began(self, group: int, mark: str) -> None:
        self._expected.discard(mark)
        self._groups[group] = mark
        self._tell(f"+{group}")

    def ended(self, group: int) -> None:
        if (mark := self._groups.pop(group, None)) is not None:
            self._tell(f"-{group} {mark}")

    async def release(self) -> None:
        """If no child is left, let the watcher end the processes that children left behind, and then itself."""
        if self._pipe is None or self._groups or self._expected:
            return
        self._tell("!")
        # A new mark, because the watcher's scan must not find processes that are started next.
        process, self._gateway = self._drop_watcher(), ""
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, _RELEASE)

    def kill(self) -> None:
        """Kill every child and everything it started, at once."""
        for group in list(self._groups):
            _signal_group(group, _KILL)
        if self._pipe is not None:
            self._tell("!")
            self._drop_watcher()

    def _start(self) -> None:
        self._gateway = self._gateway or secrets.token_hex(8)
        try:
            reading, self._pipe = os.pipe()
        except OSError as error:
            logger.warning("Servers may survive if the gateway is killed: %s.", error.strerror)
            return
        # A watcher that stops reading must not block us.
        if sys.platform != "win32":
            os.set_blocking(self._pipe, False)
        # In a thread, because starting a process takes milliseconds, and the first servers need not wait for it.
        self._starting = threading.Thread(target=self._run, args=(reading, self._gateway), daemon=True)
        self._starting.start()
        for group in self._groups:
            self._tell(f"+{group}")

    def _run(self, reading: int, gateway: str) -> None:
        command = [sys.executable, "-I", "-S", str(Path(orphans.__file__)), gateway]
        null = subprocess.DEVNULL
        # Without our own mark, which we have if another gateway started us: the watcher must outlive us.
        environment = {name: value for name, value in os.environ.items() if name != orphans.VARIABLE}
        try:
            self._process = subprocess.Popen(
                command, stdin=reading, stdout=null, stderr=null, env=environment, cwd="/", start_new_session=True
            )
        except OSError as error:
            logger.warning("Servers may survive if the gateway is killed: %s.", error.strerror)
        finally:
            os.close(reading)

    def _tell(self, line: str) -> None:
        if self._pipe is None:
            return
        try:
            os.write(self._pipe, f"{line}\n".encode())
        except OSError:
            # The watcher was ended from outside; the next child starts another.
            if (process := self._drop_watcher()) is not None:
                process.poll()

    def _drop_watcher(self) -> subprocess.Popen[bytes] | None:
        if self._starting is not None:
            self._starting.join()
        if self._pipe is not None:
            os.close(self._pipe)
        process, self._process, self._pipe, self._starting = self._process, None, None, None
        return process


_watch = _Watch()


async def release() -> None:
    """After the last child of this process has ended, end everything that children left behind."""
    await _watch.release()


def kill_all() -> None:
    """Kill every child of this process now. For a process that is about to exit."""
    _watch.kill()
