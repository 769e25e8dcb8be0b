"""What HTTP transports ask before a request and after a refusal. Implemented by `identity` for logins, and here by a
command that prints headers.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL, Principal
from mcp_optimizer.errors import UpstreamError
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.upstream.transports import processes


@dataclass(frozen=True)
class LoginOffer:
    """The address where a person can log in now, and a function that waits for the login."""

    address: str
    done: Callable[[], Awaitable[object]]


class Authorization(Protocol):
    """Provides the headers that authenticate us to a server."""

    async def headers(self) -> Mapping[str, str]:
        """The headers for the next request. Raises `LoginNeeded` if the server is known to refuse it."""
        ...

    async def refused(self, status: int, challenges: str, sent: Mapping[str, str]) -> bool:
        """Handle the refusal of a request with these headers. True if other headers are worth another attempt."""
        ...

    def secrets(self) -> Mapping[str, str]:
        """The credentials in use, by name, which must never be shown."""
        ...

    async def missing(self) -> str:
        """Why a login has to be made first, as far as that is known without asking the server; empty if it is not."""
        ...

    async def until_login(self) -> None:
        """Wait until a person has logged in."""
        ...

    async def has_another(self) -> bool:
        """Whether a person has logged in since the last login was missing or refused."""
        ...

    def offered(self) -> AbstractAsyncContextManager[LoginOffer]:
        """Offer a login that can be made while the context is open."""
        ...


AuthorizeOne = Callable[[ServerSpec], Authorization | None]
"""Returns one caller's authorization for a server; None if it needs none."""


class Authorize(Protocol):
    """Returns a caller's authorization for a server; None if it needs none."""

    def __call__(self, spec: ServerSpec, principal: Principal = LOCAL_PRINCIPAL) -> Authorization | None: ...


def no_authorization(spec: ServerSpec, principal: Principal = LOCAL_PRINCIPAL) -> Authorization | None:
    """Send only the headers of the server's entry."""
    del spec, principal
    return None


# Gets headers from a command, Claude Code's `headersHelper`, run when headers are missing, expired or refused. The
# command runs in a shell as a child process, like a server: in its own process group, watched, and with the same
# reduced environment. Its output is secret and never shown.

_TIMEOUT = 10.0
"""Seconds to wait for the command, as Claude Code does."""
_MOST_BYTES = 64 * 1024
_LONGEST_KEPT = 3_600.0
"""Maximum seconds for which headers are kept."""
_PAUSE = 5.0
"""Seconds between two runs because of refused headers, so that a server that refuses all headers causes few runs."""
_CHUNK = 64 * 1024
_NAME = regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = regex(r"[\t\x20-\x7e]*")


class _CommandFailed(Exception):
    """The command failed; the message completes "it ..."."""


@dataclass(frozen=True)
class _Printed:
    headers: Mapping[str, str]
    lasts: float


class HeaderCommand:
    """The headers of one server, as its command prints them; an `Authorization`."""

    def __init__(
        self, spec: ServerSpec, *, timeout: float = _TIMEOUT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = spec.name
        self._child = _as_child(spec)
        self._timeout = timeout
        self._clock = clock
        self._turn = asyncio.Lock()
        self._runs = 0
        self._headers: Mapping[str, str] = {}
        self._until = -math.inf
        self._rerun_at = -math.inf
        self._failure: str | None = None

    async def headers(self) -> Mapping[str, str]:
        """The headers for the next request."""
        if self._clock() >= self._until:
            await self._run()
        return self._headers

    async def refused(self, status: int, _challenges: str, sent: Mapping[str, str]) -> bool:
        """Whether the command now provides other headers than those that the server refused."""
        if status != 401:
            return False
        if dict(sent) == self._headers and self._clock() >= self._rerun_at + _PAUSE:
            await self._run()
            self._rerun_at = self._clock()
        return dict(sent) != self._headers

    def secrets(self) -> Mapping[str, str]:
        """The printed headers, which must be removed from the server's texts."""
        return self._headers

    def offered(self) -> AbstractAsyncContextManager[LoginOffer]:
        """Not available; raises UpstreamError."""
        raise UpstreamError(self._server, "It has no login: its headers come from a command.")

    async def missing(self) -> str:
        """Nothing: no person logs in."""
        return ""

    async def until_login(self) -> None:
        """Wait forever: the command provides the headers, so no person logs in."""
        await anyio.sleep_forever()

    async def has_another(self) -> bool:
        """Never: no person logs in."""
        return False

    async def _run(self) -> None:
        """Run the command, or share the result of a run that finished while this one waited for its turn."""
        seen = self._runs
        async with self._turn:
            if self._runs == seen:
                await self._renew()
        if self._failure is not None:
            raise UpstreamError(self._server, self._failure)

    async def _renew(self) -> None:
        self._until = -math.inf
        try:
            printed = _parsed(await _output(self._child, self._timeout))
        except _CommandFailed as how:
            self._failure = (
                f"The headersHelper of the server {self._server!r} failed: it {how}. Run it in a terminal to see why."
            )
        else:
            self._headers, self._until, self._failure = printed.headers, self._clock() + printed.lasts, None
        # Not counted if we are cancelled: the next waiting call then runs the command.
        self._runs += 1


def _as_child(spec: ServerSpec) -> ServerSpec:
    """The command as a process to start, with the variables that Claude Code sets to name the server."""
    shell = ("cmd", "/d", "/s", "/c") if sys.platform == "win32" else ("/bin/sh", "-c")
    told = {"CLAUDE_CODE_MCP_SERVER_NAME": spec.name, "CLAUDE_CODE_MCP_SERVER_URL": spec.url}
    return ServerSpec(
        name=spec.name,
        transport=Transport.STDIO,
        command=shell[0],
        args=(*shell[1:], spec.auth.headers_command),
        env={**spec.env, **told},
        cwd=spec.cwd,
    )


async def _output(child: ServerSpec, timeout: float) -> bytes:
    """The command's output, after the command and everything it started have ended."""
    try:
        process = await processes.spawn(child)
    except OSError as error:
        raise _CommandFailed(f"was not started: {error.strerror or error}") from None
    except ValueError:
        raise _CommandFailed("was not started: it or its environment has a null character in it") from None
    try:
        async with asyncio.timeout(timeout):
            output = await _read(process)
    except TimeoutError:
        raise _CommandFailed(f"did not end within {timeout:g} s") from None
    finally:
        with anyio.CancelScope(shield=True):
            # No grace period: its stdin is closed, and its time is over.
            await processes.end(process, grace=0)
    if len(output) > _MOST_BYTES:
        raise _CommandFailed(f"printed more than {_MOST_BYTES // 1024} KB")
    if code := process.returncode:
        raise _CommandFailed(f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}")
    return output


async def _read(process: asyncio.subprocess.Process) -> bytes:
    """The command's complete output once it has ended, or more than it may print, while it may still run."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    # A command that reads its stdin gets end of file, because no person can answer it.
    process.stdin.close()
    output = bytearray()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_ignore, process.stderr)
        while len(output) <= _MOST_BYTES and (chunk := await process.stdout.read(_CHUNK)):
            output.extend(chunk)
        if len(output) <= _MOST_BYTES:
            await processes.ended(process, math.inf)
        tasks.cancel_scope.cancel()
    return bytes(output)


async def _ignore(stream: asyncio.StreamReader) -> None:
    while await stream.read(_CHUNK):
        pass


def _parsed(output: bytes) -> _Printed:
    """Parse a JSON object of headers, or one that also states for how many seconds they are valid."""
    try:
        said: Any = json.loads(output)
    except (ValueError, RecursionError):
        raise _CommandFailed("printed something else than a JSON object of headers") from None
    lasts = _LONGEST_KEPT
    if isinstance(said, dict) and isinstance(said.get("headers"), dict):
        lasts = min(lasts, _seconds(said.get("expires_in", lasts)))
        said = said["headers"]
    if not isinstance(said, dict) or not all(
        _NAME.fullmatch(name) and isinstance(value, str) and _VALUE.fullmatch(value) for name, value in said.items()
    ):
        raise _CommandFailed("printed something else than a JSON object of headers")
    return _Printed(said, lasts)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise _CommandFailed('printed an "expires_in" that is not a positive number of seconds')
    return float(min(value, _LONGEST_KEPT))
