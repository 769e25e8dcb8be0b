"""Runs an optimizer for one command, with progress on a terminal while the servers start."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_optimizer.runtime.quick_imports import quick_imports
from mcp_optimizer.runtime.terminal_text import counted, in_a_line
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from mcp_optimizer.app.optimizer import Optimizer

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end, on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@asynccontextmanager
async def started(settings: Settings, *, shows_servers: bool = False) -> AsyncIterator[Optimizer]:
    """A started optimizer whose servers are up, as far as they come up within `--wait`.

    Missing servers are named on stderr, unless the command `shows_servers` itself.
    """
    with quick_imports():
        from mcp_optimizer.app.optimizer import Optimizer
        from mcp_optimizer.upstream.supervisor import restarts

    # Trying things out on the command line does not count as use of the gateway.
    optimizer = Optimizer.from_settings(settings.model_copy(update={"history": False, "reload": False}))
    if "log_level" not in settings.model_fields_set:
        # Missing servers are reported once, below, not on every restart attempt.
        restarts.setLevel(logging.ERROR)
    optimizer.start()
    try:
        if sys.stderr.isatty():
            await _wait_visibly(optimizer, settings.wait)
        else:
            await optimizer.wait_for_servers(settings.wait)
        if not shows_servers:
            from mcp_optimizer.control.facts import missing_facts

            name_missing(missing_facts(optimizer.snapshot))
        yield optimizer
    finally:
        await optimizer.stop()


def name_missing(missing: Sequence[Mapping[str, str]]) -> None:
    """Which servers an answer does not cover, on stderr."""
    for state in missing:
        # A login that is needed says so itself.
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
