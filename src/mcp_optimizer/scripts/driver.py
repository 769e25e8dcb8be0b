"""Runs one script in its worker until it ends: answers its requests and collects its output.

A script that stops for a call gets the result at once, or an awaitable if other calls may run meanwhile. Calls that
have begun are finished. Recognises pydantic_monty's values by their type names, so that importing this module costs
nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.scripts.inner_calls import CallFailed, InnerCalls, TooManyInnerCalls
from mcp_optimizer.scripts.unsupported import host_refusal
from mcp_optimizer.scripts.worker_prelude import CALL, FIND, LATER, NOW, PARALLEL

if TYPE_CHECKING:
    from pydantic_monty import AsyncMontySession


class Printed:
    """Collects printed text; text beyond the limit is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[str] = []
        self._size = 0
        self.is_cut = False

    def __call__(self, _stream: str, text: str) -> None:
        room = self._most - self._size
        if len(text) > room:
            self.is_cut = True
            text = text[: max(0, room)]
        if text:
            self._parts.append(text)
            self._size += len(text)

    @property
    def text(self) -> str:
        return "".join(self._parts)


logger = logging.getLogger(__name__)

_SLEEP, _SLEEP_LATER = "system.sleep", "system.async_sleep"

_LONGEST_SLEEP = 86_400
"""Seconds; the event loop does not accept every number, and a script's time ends much earlier anyway."""

Answer = dict[str, Any]


class Driver:
    """Runs one script in one session."""

    def __init__(self, session: AsyncMontySession, calls: InnerCalls, printed: Printed, most_held: int) -> None:
        """`most_held`: characters of results that may wait until the script takes them."""
        self._room = most_held
        self._session = session
        self._printed = printed
        self._begun: dict[int, asyncio.Task[Answer]] = {}
        self._tasks = BackgroundTasks(logger, "A call of a script failed", expected=(TooManyInnerCalls,))
        self._does: Mapping[str, Callable[[str, str], Awaitable[str]]] = {
            CALL: calls.call,
            PARALLEL: calls.parallel,
            FIND: calls.find,
        }

    async def run(self, setup: str, code: str) -> str:
        """Returns the script's value as the worker shows it. Raises the error that ends the script."""
        await self._session.feed_run(setup, print_callback=self._printed)
        try:
            state: Any = await self._session.feed_start(code, print_callback=self._printed)
            while type(state).__name__ != "MontyComplete":
                state = await self._go_on(state)
            return str(state.output or "")
        except asyncio.CancelledError:
            self._tasks.cancel()
            raise
        finally:
            await self._finish()

    async def _go_on(self, state: Any) -> Any:
        """Answers the request that the script waits for."""
        kind = type(state).__name__
        if kind == "AsyncFunctionSnapshot":
            return await self._function(state)
        if kind == "AsyncFutureSnapshot":
            return await state.resume(await self._settled(state.pending_call_ids))
        # The script reads a name that does not exist.
        return await state.resume()

    async def _function(self, state: Any) -> Any:
        name = state.function_name
        if state.is_os_function:
            return await self._host(state, name)
        if name == NOW:
            return await state.resume(await self._answer(state.args))
        if name == LATER:
            self._begun[state.call_id] = self._tasks.spawn(self._held(state.args))
            return await state.resume({"future": ...})
        return await state.resume({"exc_type": "NameError", "message": f"name {name[:100]!r} is not defined"})

    async def _host(self, state: Any, name: str) -> Any:
        """A function that the script requests from its host: only sleeping is allowed, within the script's time."""
        if name == _SLEEP:
            await _slept(state.args)
            return await state.resume({"return_value": None})
        if name == _SLEEP_LATER:
            self._begun[state.call_id] = self._tasks.spawn(_slept(state.args))
            return await state.resume({"future": ...})
        if refusal := host_refusal(name):
            return await state.resume({"exc_type": "PermissionError", "message": refusal})
        return await state.resume_not_handled()

    def _answer(self, args: tuple[Any, ...]) -> Coroutine[Any, Any, Answer]:
        return _answered(self._does, args)

    async def _held(self, args: tuple[Any, ...]) -> Answer:
        """The result of a call that the script does not wait for yet."""
        answer = await self._answer(args)
        self._room -= _size(answer)
        if self._room < 0:
            raise TooManyInnerCalls("Its calls returned more at a time than it may hold.")
        return answer

    async def _settled(self, ids: list[int]) -> dict[int, Answer]:
        """The results of those awaited calls that finish first."""
        waiting = {self._begun[one]: one for one in ids if one in self._begun}
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        found = {waiting[task]: task.result() for task in done}
        for one, answer in found.items():
            del self._begun[one]
            self._room += _size(answer)
        return found

    async def _finish(self) -> None:
        """Waits for calls that the script began but did not await; cancels them if the run itself is cancelled."""
        try:
            await self._tasks.settled()
        finally:
            self._tasks.cancel()


def _size(answer: Answer) -> int:
    return len(answer.get("return_value") or "")


async def _slept(args: tuple[Any, ...]) -> Answer:
    seconds = args[0] if args and isinstance(args[0], int | float) else 0
    await asyncio.sleep(min(max(seconds, 0), _LONGEST_SLEEP))
    return {"return_value": None}


async def _answered(does: Mapping[str, Callable[[str, str], Awaitable[str]]], args: tuple[Any, ...]) -> Answer:
    """The answer for the script: a text or an exception."""
    if len(args) != 3 or not all(isinstance(one, str) for one in args) or args[0] not in does:
        return {"exc_type": "TypeError", "message": "a tool's name must be a text"}
    try:
        return {"return_value": await does[args[0]](args[1], args[2])}
    except CallFailed as error:
        return {"exc_type": "RuntimeError", "message": str(error)}
    except ValueError as error:
        return {"exc_type": "ValueError", "message": str(error)[:200]}
