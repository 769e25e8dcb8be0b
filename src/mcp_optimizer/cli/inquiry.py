"""Has a request answered: by a running gateway, if there is one that would answer the same, else by a fresh one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.running import name_missing, run, started
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from mcp_optimizer.app.optimizer import Optimizer
    from mcp_optimizer.control.asking import RunningGateway
    from mcp_optimizer.control.requests import Request

_NEUTRAL = frozenset("config demo servers database wait log_level log_format".split())
"""Options that choose a gateway, or change nothing in what it answers. With any other, the command starts servers."""

FreshFlag = Annotated[bool, typer.Option("--fresh", help="Start the servers, even if a gateway is running.")]

Begin = Callable[[Settings], AbstractAsyncContextManager["Optimizer"]]


@dataclass(frozen=True)
class Inquiry:
    """Whom a command may ask: what was said on the command line, and the settings that it leads to."""

    settings: Settings
    flags: frozenset[str]
    fresh: bool = False

    def answer(self, request: Request, begin: Begin = started, *, shows_servers: bool = False) -> Any:
        """What the command prints. Missing servers are named on stderr, unless it `shows_servers` itself."""
        gateway = self._running()
        if gateway is None:
            return run(_fresh(request, begin(self.settings)))["value"]
        answer = gateway.ask(request.model_copy(update={"wait": self.settings.wait}))
        if not shows_servers:
            name_missing(answer["missing"])
        say(f"answered by the running gateway (pid {gateway.hello.pid})")
        return answer["value"]

    @property
    def is_running(self) -> bool:
        """Whether a running gateway would answer."""
        return self._running() is not None

    def _running(self) -> RunningGateway | None:
        if self.fresh or not self.flags <= _NEUTRAL:
            return None
        from mcp_optimizer.control.asking import running_gateways

        found = running_gateways(self.settings)
        for gateway in found:
            if gateway.is_same_version:
                return gateway
            say(f"the running gateway (pid {gateway.hello.pid}) is another version, {gateway.hello.version}")
        return None


async def _fresh(request: Request, beginning: AbstractAsyncContextManager[Optimizer]) -> dict[str, Any]:
    async with beginning as optimizer:
        return await optimizer.answers().answer(request)


def say(text: str) -> None:
    """For people only; a program that reads our stderr wants errors there."""
    if sys.stderr.isatty():
        from mcp_optimizer.runtime.terminal_text import in_a_line

        print(in_a_line(text), file=sys.stderr)
