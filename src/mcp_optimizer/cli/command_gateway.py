"""Gives a command a gateway to work with: a running one that would give the same answer, or one for this command.

One for this command answers from what is stored of servers that were listed before, and starts only servers that are
not known yet, and those that it calls; with --fresh it starts all. Meanwhile a terminal shows which servers it waits
for. Every command that needs tools or servers comes through here.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import UnknownTool
from mcp_optimizer.runtime.lazy import quick_imports
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, span

if TYPE_CHECKING:
    from mcp_optimizer.app.control.command_requests import Request
    from mcp_optimizer.app.control.gateway_client import RunningGateway
    from mcp_optimizer.app.optimizer import Optimizer

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@asynccontextmanager
async def started(settings: Settings, fresh: bool = False, *, shows_servers: bool = False) -> AsyncIterator[Optimizer]:
    """A started optimizer whose servers are known, as far as they start within `--wait`; with `fresh`, all start.

    Missing servers are named on stderr, unless the command `shows_servers` itself.
    """
    with quick_imports():
        from mcp_optimizer.app.command_start import remember_failures, resting_optimizer, starting_optimizer

    as_of = None
    if fresh:
        optimizer = starting_optimizer(of_command(settings))
    else:
        optimizer, stored = await resting_optimizer(of_command(settings))
        as_of = stored.as_of
    async with waited_for(optimizer):
        await remember_failures(optimizer, optimizer.servers())
        _say_as_of(optimizer, as_of)
        if not shows_servers:
            from mcp_optimizer.app.control.command_facts import missing_facts

            name_missing(missing_facts(optimizer.snapshot))
        yield optimizer
        await remember_failures(optimizer, optimizer.servers())


def of_command(settings: Settings) -> Settings:
    """The settings of a gateway that answers one command: what is tried there does not count as use."""
    return with_installed_parts(settings)[0].model_copy(update={"history": False, "reload": False})


def with_installed_parts(settings: Settings) -> tuple[Settings, str]:
    """The settings with scripts off if the extra that they need is missing, and then what to install: a gateway that
    ends instead leaves its client with "connection closed".
    """
    if settings.scripts == "off":
        return settings, ""
    from mcp_optimizer.scripts.workers import MISSING, is_installed

    return (settings, "") if is_installed() else (settings.model_copy(update={"scripts": "off"}), MISSING)


@asynccontextmanager
async def waited_for(optimizer: Optimizer) -> AsyncIterator[None]:
    """Start a gateway and wait for its servers, visibly at a terminal; stop it at the end."""
    from mcp_optimizer.upstream.supervisor import restarts

    settings = optimizer.settings
    if "log_level" not in settings.model_fields_set:
        # Missing servers are reported once, not on every restart attempt.
        restarts.setLevel(logging.ERROR)
    optimizer.start()
    try:
        if sys.stderr.isatty():
            await _wait_visibly(optimizer, settings.wait)
        else:
            await optimizer.wait_for_servers(settings.wait)
        yield
    finally:
        await optimizer.stop()


def _say_as_of(optimizer: Optimizer, as_of: float | None) -> None:
    """For a person, that servers were not asked, and since when."""
    resting = sum(state.is_resting for state in optimizer.servers())
    if as_of is not None and resting:
        ago = f"{span(age)} ago" if (age := time.time() - as_of) >= 1 else "now"
        say(f"{counted(resting, 'server')} as of {ago}; --fresh starts all of them")


def name_missing(missing: Sequence[Mapping[str, str]]) -> None:
    """Name on stderr the servers that an answer does not cover."""
    for state in missing:
        # A login that is required is reported on its own.
        says_status = state["reason"].startswith(state["status"])
        status = "" if says_status else f" ({state['status']})"
        reason = f": {state['reason']}" if state["reason"] else ""
        print(in_a_line(f"without server {state['name']}{status}{reason}"), file=sys.stderr)
    if missing:
        print("Run `mcp-optimizer doctor` to see how to fix that.", file=sys.stderr)


async def _wait_visibly(optimizer: Optimizer, seconds: float) -> None:
    from rich.console import Console
    from rich.markup import escape

    from mcp_optimizer.domain.tools import ServerStatus

    console = Console(stderr=True)
    waiting = asyncio.create_task(optimizer.wait_for_servers(seconds))
    with console.status("Starting servers") as status:
        while not waiting.done():
            starting = [state.name for state in optimizer.servers() if state.status is ServerStatus.STARTING]
            up = sum(state.status is ServerStatus.RUNNING for state in optimizer.servers())
            names = escape(in_a_line(", ".join(starting[:4])))
            status.update(f"{counted(up, 'server')} up; waiting for {names or 'the index'}")
            await asyncio.wait([waiting], timeout=0.1)
    await waiting


_NEUTRAL = frozenset("config demo servers database wait log_level log_format".split())
"""Options that select a gateway, or do not affect its answers. With any other option, no running gateway is asked."""

FreshFlag = Annotated[
    bool,
    typer.Option("--fresh", help="Start all servers, even if a gateway is running, or they are known from before."),
]

Begin = Callable[[Settings, bool], AbstractAsyncContextManager["Optimizer"]]
"""Begins a gateway for one command; with the second argument, all servers start."""


@dataclass(frozen=True)
class Inquiry:
    """Which gateway a command may ask: its options, and the settings they result in."""

    settings: Settings
    flags: frozenset[str]
    fresh: bool = False

    def answer(self, request: Request, begin: Begin | None = None, *, shows_servers: bool = False) -> Any:
        """What the command prints. Missing servers that the answer would cover are named on stderr, unless the command
        `shows_servers` itself, or begins in a way of its own.
        """
        gateway = self._running()
        if gateway is not None:
            answer = gateway.ask(request.model_copy(update={"wait": self.settings.wait}))
        else:
            settings = self.settings.model_copy(update={"encoder": "none"}) if _only_lists(request) else self.settings
            if begin is not None:
                return run(_answered(request, begin(settings, self.fresh)))["value"]
            answer = run(_answered(request, started(settings, self.fresh, shows_servers=True), names_missing=True))
        if not shows_servers:
            name_missing(answer["missing"])
        if gateway is not None:
            say(f"answered by the running gateway (pid {gateway.hello.pid})")
        return answer["value"]

    def asked(self, request: Request) -> Any:
        """What a running gateway says, or None without one."""
        gateway = self._running()
        return None if gateway is None else gateway.ask(request)["value"]

    @property
    def is_running(self) -> bool:
        """Whether a running gateway would answer."""
        return self._running() is not None

    def _running(self) -> RunningGateway | None:
        if self.fresh or not self.flags <= _NEUTRAL:
            return None
        from mcp_optimizer.app.control.gateway_client import running_gateways

        found = running_gateways(self.settings)
        for gateway in found:
            if gateway.is_same_version:
                return gateway
            say(f"the running gateway (pid {gateway.hello.pid}) is another version, {gateway.hello.version}")
        return None


def _only_lists(request: Request) -> bool:
    """Whether the answer is the same without an encoder, because nothing is searched by meaning."""
    from mcp_optimizer.app.control.command_requests import ResolveRequest, ServersRequest, ShowRequest, ToolsRequest

    return isinstance(request, (ResolveRequest, ServersRequest, ShowRequest, ToolsRequest))


async def _answered(
    request: Request, beginning: AbstractAsyncContextManager[Optimizer], *, names_missing: bool = False
) -> dict[str, Any]:
    async with beginning as optimizer:
        try:
            return await optimizer.answers().answer(request)
        except UnknownTool:
            if names_missing:
                from mcp_optimizer.app.control.command_facts import missing_facts

                # What was not found may be there.
                name_missing(missing_facts(optimizer.snapshot))
            raise


def say(text: str) -> None:
    """For people only; a program that reads our stderr wants only errors there."""
    if sys.stderr.isatty():
        from mcp_optimizer.runtime.terminal_text import in_a_line

        print(in_a_line(text), file=sys.stderr)
