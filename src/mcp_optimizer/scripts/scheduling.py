"""Decides which scripts run now, and for how long: a limited number at a time, and never all for one caller.

Entered around the run of a script. While a person is asked, the script's clock stops and its turn goes to another
script. Knows nothing of scripts or workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.domain.protocol import INTERNAL_ERROR
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.gateway.nested_calls import NestedLink
from mcp_optimizer.runtime.caller_shares import CallerShares
from mcp_optimizer.upstream.request_errors import RpcError


class ScriptClock:
    """Entered around a run, which it ends with TimeoutError when the seconds are used up."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since = 0.0
        self._stops = 0
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._go()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, where)

    @property
    def is_over(self) -> bool:
        """Whether the clock ended the run."""
        return self._timeout.expired()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stops the clock while a person is asked."""
        self._stops += 1
        if self._stops == 1:
            self._left -= asyncio.get_running_loop().time() - self._since
            self._reschedule(None)
        try:
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                self._go()

    def _go(self) -> None:
        self._since = asyncio.get_running_loop().time()
        self._reschedule(self._since + self._left)

    def _reschedule(self, when: float | None) -> None:
        try:
            self._timeout.reschedule(when)
        except RuntimeError:
            # The run is ending already.
            return


_PATIENCE = 10.0
"""Seconds that a script waits for a turn."""


class ScriptTurns:
    """The turns of all callers' scripts."""

    def __init__(self, at_once: int) -> None:
        """`at_once`: how many scripts run. As many more may have asked a person a question, and resume after the
        answer.
        """
        self._free = asyncio.Semaphore(at_once)
        self._shares = CallerShares(max(1, at_once - 1))
        self._places = at_once
        self.most = 2 * at_once
        """Scripts that run or wait for an answer."""

    def of(self, caller: str) -> ScriptTurn:
        return ScriptTurn(self, caller)

    async def take(self, caller: str, taken: AsyncExitStack) -> None:
        """Waits for a turn. A caller with many scripts leaves one turn for others. Raises InvalidRequest on timeout."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await taken.enter_async_context(self._shares.place(caller))
                await self._free.acquire()
        except TimeoutError:
            raise InvalidRequest("Too many scripts are running at a time. Try again later.") from None

    def to_asking(self) -> None:
        """Gives up the turn of a script that will wait for a person. Raises RpcError if too many scripts wait."""
        if not self._places:
            raise RpcError(INTERNAL_ERROR, "Too many scripts wait for an answer. Try again later.")
        self._places -= 1
        self._free.release()

    def end(self, *, has_asked: bool) -> None:
        """Frees the place of a script that has ended."""
        if has_asked:
            self._places += 1
        else:
            self._free.release()


class ScriptTurn:
    """The turn of one script."""

    def __init__(self, turns: ScriptTurns, caller: str) -> None:
        self._turns = turns
        self._caller = caller
        self._taken = AsyncExitStack()
        self._has_asked = False

    async def __aenter__(self) -> Self:
        try:
            await self._turns.take(self._caller, self._taken)
        except BaseException:
            await self._taken.aclose()
            raise
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._turns.end(has_asked=self._has_asked)
        await self._taken.aclose()

    def ask(self) -> None:
        """Lets another script run while this one waits for a person, which may take long."""
        if not self._has_asked:
            self._turns.to_asking()
            self._has_asked = True


class ScriptLink(NestedLink):
    """The link to a script's client. It lasts as long as the script, whichever of the client's requests is open. While
    a person is asked, the script's clock is stopped.
    """

    def __init__(self, link: ClientLink, key: str, clock: ScriptClock, turn: ScriptTurn) -> None:
        super().__init__(link, key)
        self._clock = clock
        self._turn = turn

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._turn.ask()
        with self._clock.stopped():
            return await super().ask(method, params)
