"""Runs one script in its worker until it ends: begins with our own Python, answers the script's requests and collects
its output.

A script that stops for a call gets the result at once, or an awaitable if other calls may run meanwhile. Calls that
have begun are finished. Recognises pydantic_monty's values by their type names, so that importing this module costs
nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.scripts.inner_calls import CallFailed, InnerCalls, TooManyInnerCalls
from mcp_optimizer.scripts.interpreter import host_refusal

if TYPE_CHECKING:
    from pydantic_monty import AsyncMontySession

logger = logging.getLogger(__name__)


# The Python that runs in a worker before each script: it passes calls to the gateway and returns their results.
# Arguments and results cross as text and are converted in the worker, because objects would block the event loop. The
# names begin with `_mo_`; a script that uses them gains nothing that `call` does not offer.

NOW, LATER = "_mo_now", "_mo_later_"
"""Functions of the gateway: one returns a result, the other an awaitable."""

CALL, PARALLEL, FIND = "call", "parallel", "find"
"""The operations that the gateway's functions accept."""

PRELUDE = """
import asyncio as _mo_asyncio
import json as _mo_json
import asyncio, json, re, math, datetime
ToolError = RuntimeError
class _mo_Server:
    pass
def _mo_packed(value):
    return _mo_json.dumps(value)
def _mo_parsed(text):
    try:
        return _mo_json.loads(text)
    except (ValueError, RecursionError):
        return text
def _mo_unpacked(text):
    kind = text[:1]
    if kind == "t":
        return text[1:]
    value = _mo_parsed(text[1:])
    if kind == "r" and isinstance(value, dict) and list(value) == ["result"]:
        value = value["result"]
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            return _mo_parsed(value)
    return value
def _mo_shown(value, limit):
    if value is None:
        return ""
    if isinstance(value, str):
        return "t" + value[:limit]
    try:
        return "j" + _mo_compact(value)[:limit]
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return "j" + _mo_compact(_mo_plain(value, _mo_named))[:limit]
    except (TypeError, ValueError, RecursionError):
        return "t" + repr(value)[:limit]
def _mo_compact(value):
    return _mo_json.dumps(value, ensure_ascii=False, separators=(",", ":"))
def _mo_named(value):
    return list(value) if isinstance(value, (set, frozenset)) else str(value)
def _mo_plain(value, default):
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, dict):
        return {key: _mo_plain(value[key], default) for key in value}
    if isinstance(value, (list, tuple)):
        return [_mo_plain(one, default) for one in value]
    return _mo_plain(default(value), default)
def _mo_dumps(value, default=None, **options):
    return _mo_json.dumps(value if default is None else _mo_plain(value, default), **options)
def _mo_sub(pattern, repl, string, count=0, flags=0):
    if type(repl).__name__ != "function":
        return re.sub(pattern, repl, string, count, flags)
    parts, at, done = [], 0, 0
    for found in re.finditer(pattern, string, flags):
        if count and done >= count:
            break
        parts.append(string[at:found.start()])
        parts.append(repl(found))
        at, done = found.end(), done + 1
    return "".join(parts) + string[at:]
def _mo_sorted(values, key=None, reverse=False):
    if key is None:
        return sorted(values, reverse=reverse)
    values = list(values)
    keys = [key(value) for value in values]
    order = sorted(range(len(values)), key=lambda number: keys[number], reverse=reverse)
    return [values[number] for number in order]
def _mo_most(choose, values, key, default):
    values = list(values[0] if len(values) == 1 else values)
    if not values and default:
        return default["default"]
    if key is None:
        return choose(values)
    keys = [key(value) for value in values]
    return values[choose(range(len(values)), key=lambda number: keys[number])]
def _mo_max(*values, key=None, **default):
    return _mo_most(max, values, key, default)
def _mo_min(*values, key=None, **default):
    return _mo_most(min, values, key, default)
def _mo_map(function, *lists):
    return [function(*values) for values in zip(*lists)]
def _mo_filter(function, values):
    return [value for value in values if (value if function is None else function(value))]
async def _mo_awaited(future):
    return _mo_unpacked(await future)
async def _mo_settled(value):
    if type(value).__name__ == "coroutine":
        return await value
    return value
async def _mo_kept(value):
    try:
        return await _mo_settled(value)
    except Exception as error:
        return error
async def _mo_gather(*values, return_exceptions=False):
    waited = _mo_kept if return_exceptions else _mo_settled
    return await _mo_asyncio.gather(*[waited(value) for value in values])
def _mo_tool(name):
    def tool(*args, **kwargs):
        return _mo_unpacked(_mo_now("call", name, _mo_packed([args, kwargs])))
    return tool
def _mo_later(name):
    def tool(*args, **kwargs):
        return _mo_awaited(_mo_later_("call", name, _mo_packed([args, kwargs])))
    return tool
def call(_mo_name, *args, **kwargs):
    return _mo_unpacked(_mo_now("call", _mo_name, _mo_packed([args, kwargs])))
def _mo_call_later(_mo_name, *args, **kwargs):
    return _mo_awaited(_mo_later_("call", _mo_name, _mo_packed([args, kwargs])))
def _mo_listed(items):
    if hasattr(items, "__len__") and len(items) > _mo_most_calls:
        raise ValueError(f"parallel() makes at most {_mo_most_calls} calls, not {len(items)}")
    found = []
    for item in items:
        if len(found) >= _mo_most_calls:
            raise ValueError(f"parallel() makes at most {_mo_most_calls} calls")
        found.append(item)
    return _mo_packed(found)
def parallel(name, items):
    return [_mo_unpacked(text) for text in _mo_json.loads(_mo_now("parallel", name, _mo_listed(items)))]
async def _mo_all(future):
    return [_mo_unpacked(text) for text in _mo_json.loads(await future)]
def _mo_parallel_later(name, items):
    return _mo_all(_mo_later_("parallel", name, _mo_listed(items)))
def find(text):
    return _mo_unpacked(_mo_now("find", text, ""))
def _mo_find_later(text):
    return _mo_awaited(_mo_later_("find", text, ""))
"""


def setup(servers: Mapping[str, Iterable[str]], variables: Mapping[str, Any], most_calls: int, most_shown: int) -> str:
    """The code before a script: the helpers, the servers that the script names with their tools, and its variables."""
    lines = [PRELUDE, f"_mo_most_calls, _mo_limit = {most_calls}, {most_shown}"]
    for server, tools in servers.items():
        lines.append(f"{server} = _mo_Server()")
        lines += [f"{server}.{tool} = _mo_tool({json.dumps(f'{server}.{tool}')})" for tool in tools]
    lines += [
        f"{name} = _mo_json.loads({json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False)})"
        for name, value in variables.items()
    ]
    return "\n".join(lines)


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
