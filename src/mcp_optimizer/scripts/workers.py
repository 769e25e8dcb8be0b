"""The processes in which scripts run, started for the first script, and the turns of scripts in them. Imports
pydantic_monty on first use.

Every script gets a fresh interpreter in a worker without files, network or environment. A worker that crashes or is
killed ends one script and is replaced. A process that cannot be started, or dies before it received anything, is
replaced without ending the script, because nothing ran in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.domain.protocol import INTERNAL_ERROR
from mcp_optimizer.errors import ConfigurationError, InvalidRequest
from mcp_optimizer.gateway.nested_calls import NestedLink
from mcp_optimizer.limits import Limits
from mcp_optimizer.runtime.caller_shares import CallerShares
from mcp_optimizer.upstream.request_errors import RpcError

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession

logger = logging.getLogger(__name__)


# Decides which scripts run now, and for how long: a limited number at a time, and never all for one caller. Entered
# around the run of a script. While a person is asked, the script's clock stops and its turn goes to another script.


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


_ATTEMPTS = 3
_AFTER_THE_END = 0.05
"""Seconds to wait after the last worker ended. The library's threads end a little later, and one that ends during the
interpreter's shutdown aborts the process.
"""


class WorkerPool:
    """A pool of workers; `make` sets their number and imports the library."""

    def __init__(self, make: Callable[[], AsyncMonty]) -> None:
        self._make = make
        self._pool: AsyncMonty | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def session(self, **options: Any) -> AsyncIterator[AsyncMontySession]:
        """A fresh interpreter. Raises InvalidRequest if no worker can be started."""
        async with AsyncExitStack() as entered:
            yield await self._enter(entered, options)

    async def _enter(self, entered: AsyncExitStack, options: dict[str, Any]) -> AsyncMontySession:
        for attempt in range(_ATTEMPTS):
            try:
                pool = await self._opened()
                return await entered.enter_async_context(pool.checkout(**options))
            except _not_started() as error:
                logger.warning("A worker for scripts could not be started, attempt %d: %s", attempt + 1, error)
        raise InvalidRequest(
            "No process could be started for the script, and nothing was called; the gateway's log says why. Try again "
            "later, or call the tools one by one with call_tool."
        )

    async def _opened(self) -> AsyncMonty:
        async with self._opening:
            if self._pool is None:
                self._pool = await self._make().__aenter__()
            return self._pool

    async def close(self) -> None:
        """Ends all workers."""
        async with self._opening:
            pool, self._pool = self._pool, None
            if pool is not None:
                await pool.__aexit__(None, None, None)
                await asyncio.sleep(_AFTER_THE_END)


def _not_started() -> tuple[type[Exception], ...]:
    """The library's exceptions for a process that did not start; looked up only after one was raised, so that nothing
    is imported before.
    """
    from pydantic_monty import MontyCrashedError

    return (RuntimeError, OSError, MontyCrashedError)


MISSING = (
    "Scripts need another package. Install it with: pip install 'mcp-optimizer-gateway[scripts]', or set scripts = "
    '"off".'
)

_DEEPEST = 300
"""Nested function calls that a script may make."""

_GRACE = 1.0
"""Seconds that a worker has to end a script itself before it is killed."""


def is_installed() -> bool:
    """Whether scripts can run on this machine. Imports nothing."""
    from importlib.util import find_spec

    return find_spec("pydantic_monty") is not None


def check_installed() -> None:
    """Raises ConfigurationError if scripts cannot run on this machine."""
    if not is_installed():
        raise ConfigurationError(MISSING)


class Workers:
    """A pool of workers, started with the first script."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool = WorkerPool(self._made)
        self._turns = ScriptTurns(limits.script_workers)

    def turn(self, caller: str) -> ScriptTurn:
        """A turn, to be entered before a session."""
        return self._turns.of(caller)

    @asynccontextmanager
    async def session(self, turn: ScriptTurn) -> AsyncIterator[AsyncMontySession]:
        """A fresh interpreter for one script. Raises InvalidRequest if none becomes free."""
        async with turn, self._pool.session(script_name="script", limits=self._resource_limits()) as session:
            yield session

    def _resource_limits(self) -> Any:
        return {
            "max_feed_duration_secs": self._limits.script_cpu_seconds,
            "max_memory": self._limits.script_memory,
            "max_recursion_depth": _DEEPEST,
            # A call takes up to two suspensions; the rest is for undefined names, which the interpreter looks up.
            "max_suspensions": 3 * self._limits.script_calls + 1_000,
        }

    def _made(self) -> AsyncMonty:
        try:
            import pydantic_monty
        except ImportError:
            raise ConfigurationError(MISSING) from None
        # The library silently ignores a limit whose name it does not know.
        unknown = self._resource_limits().keys() - pydantic_monty.ResourceLimits.__annotations__.keys()
        if unknown:
            raise ConfigurationError(f"This pydantic-monty does not know the limits {sorted(unknown)}. {MISSING}")
        return pydantic_monty.AsyncMonty(
            min_processes=1, max_processes=self._turns.most, feed_duration_limit_grace=_GRACE
        )

    async def close(self) -> None:
        """Ends all workers."""
        await self._pool.close()
