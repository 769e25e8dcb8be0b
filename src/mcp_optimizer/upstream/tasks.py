"""Waits for a task, for a client that cannot: asks its server for the task until it ends.

A server may answer a call with a task, which ends later. The caller's client is told of progress and asked the task's
questions, as in any other call; if it cancels the call or it takes too long, the task is cancelled at its server. Used
by `server_calls`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.protocol import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_optimizer.errors import CallTimeout, UpstreamError, UpstreamRefusal
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.messages import shortened
from mcp_optimizer.upstream.questions import ELICITATION
from mcp_optimizer.upstream.request_errors import RpcError

logger = logging.getLogger(__name__)

METHODS = ("tasks/get", "tasks/update", "tasks/cancel")

_SOONEST, _USUAL, _LATEST = 0.05, 1.0, 30.0
"""Seconds between two questions for a task: the least, those for a server that suggests none, and the most."""

_AWAY = 60.0
"""Seconds for which a server may be away while one of its tasks is awaited."""

_LONGEST_ID = 1_000
_LONGEST_MESSAGE = 1_000
_MOST_QUESTIONS = 100
"""Maximum questions of one task."""

ENDED = frozenset({"completed", "failed", "cancelled"})

Ask = Callable[[str, dict[str, Any], Caller], Coroutine[Any, Any, dict[str, Any]]]
"""Sends one request about a task to its server."""


def id_of(task: Mapping[str, Any], server: str) -> str:
    """The id of a task at its server; raises UpstreamRefusal if it has none that can be used."""
    found = task.get("taskId")
    if not isinstance(found, str) or not 0 < len(found) <= _LONGEST_ID or not found.isprintable():
        raise UpstreamRefusal(server, INTERNAL_ERROR, "The server answered with a task without a usable taskId.")
    return found


def pause_of(task: Mapping[str, Any]) -> float:
    """Seconds until the server should be asked for a task again."""
    said = task.get("pollIntervalMs")
    if isinstance(said, bool) or not isinstance(said, int | float):
        return _USUAL
    return min(max(said / 1_000, _SOONEST), _LATEST)


def result_of(task: Mapping[str, Any], server: str) -> dict[str, Any] | None:
    """The result of a task; None if it has not ended. Raises UpstreamRefusal if it failed or was cancelled."""
    status, message = task.get("status"), task.get("statusMessage")
    said = shortened(message, _LONGEST_MESSAGE) if isinstance(message, str) else ""
    if status == "completed":
        result = task.get("result")
        if not isinstance(result, dict):
            raise UpstreamRefusal(server, INTERNAL_ERROR, "The task is completed, but has no result.")
        return result
    if status == "failed":
        error = task.get("error")
        details = error if isinstance(error, dict) else {}
        code, text = details.get("code"), details.get("message")
        raise UpstreamRefusal(
            server,
            code if type(code) is int else INTERNAL_ERROR,
            shortened(text, _LONGEST_MESSAGE) if isinstance(text, str) else said or "The task failed.",
            details.get("data"),
        )
    if status == "cancelled":
        raise UpstreamRefusal(server, INTERNAL_ERROR, f"The task was cancelled. {said}".strip())
    if status not in ("working", "input_required"):
        raise UpstreamRefusal(server, INTERNAL_ERROR, "The task has a status that the protocol does not know.")
    return None


class TaskWaiting:
    """Waits for the tasks of one server."""

    def __init__(self, server: str, ask: Ask, seconds: float) -> None:
        """`seconds`: the maximum for one task."""
        self._server = server
        self._ask = ask
        self._seconds = seconds
        self._cancelling = BackgroundTasks(logger, "A task could not be cancelled", expected=(UpstreamError,))

    async def result(self, created: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """The result of the task that a server answered with."""
        task_id = id_of(created, self._server)
        # The answers and the state of the call belong to the call, not to its task.
        caller = caller._replace(passed_on={key: caller.passed_on[key] for key in caller.passed_on if key == "_meta"})
        try:
            async with asyncio.timeout(self._seconds):
                return await self._until_it_ends(task_id, created, caller)
        except TimeoutError:
            self._cancel(task_id, caller)
            text = f"A task of the server {self._server!r} did not end within {self._seconds:g} s and was cancelled."
            raise CallTimeout(self._server, text) from None
        except asyncio.CancelledError:
            self._cancel(task_id, caller)
            raise

    async def _until_it_ends(self, task_id: str, created: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        task, answered, told = created, set[str](), _ProgressTold(caller)
        while True:
            # The first answer has no result, even of a task that has ended.
            if task is not created and (result := result_of(task, self._server)) is not None:
                return result
            if task.get("status") == "input_required":
                await self._answer(task_id, task, answered, caller)
            await told.tell(task)
            if task.get("status") not in ENDED:
                await asyncio.sleep(pause_of(task))
            task = await self._got(task_id, caller)

    async def _got(self, task_id: str, caller: Caller) -> dict[str, Any]:
        """The task as its server has it. A server that is away is asked again: a task survives its restart."""
        since = time.monotonic()
        while True:
            try:
                return await self._ask("tasks/get", {"taskId": task_id}, _silent(caller))
            except UpstreamRefusal:
                raise
            except UpstreamError:
                if time.monotonic() - since > _AWAY:
                    raise
                await asyncio.sleep(_USUAL)

    async def _answer(self, task_id: str, task: Mapping[str, Any], answered: set[str], caller: Caller) -> None:
        """Ask the caller's client the questions of a task that are new."""
        requests = task.get("inputRequests")
        new = {key: asked for key, asked in requests.items() if key not in answered} if requests else {}
        if len(answered) + len(new) > _MOST_QUESTIONS:
            self._cancel(task_id, caller)
            raise UpstreamRefusal(self._server, INVALID_PARAMS, f"A task asked over {_MOST_QUESTIONS} questions.")
        given: dict[str, Any] = {}
        for key, asked in new.items():
            given[key] = await self._answer_to(task_id, asked if isinstance(asked, dict) else {}, caller)
        if given:
            await self._ask("tasks/update", {"taskId": task_id, "inputResponses": given}, _silent(caller))
            answered |= given.keys()

    async def _answer_to(self, task_id: str, asked: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        method, params = str(asked.get("method")), asked.get("params")
        try:
            if caller.link is None:
                raise RpcError(METHOD_NOT_FOUND, f"{method}: there is no client to ask")
            return await caller.link.ask(method, params if isinstance(params, dict) else {})
        except RpcError as error:
            if method == ELICITATION and caller.link is not None and error.code != METHOD_NOT_FOUND:
                return {"action": "cancel"}
            self._cancel(task_id, caller)
            raise UpstreamRefusal(self._server, error.code, error.message, error.data) from error

    def _cancel(self, task_id: str, caller: Caller) -> None:
        self._cancelling.spawn(self._ask("tasks/cancel", {"taskId": task_id}, _silent(caller)))


def _silent(caller: Caller) -> Caller:
    """The caller of a request about a task: its progress token belongs to the call."""
    meta = caller.passed_on.get("_meta")
    if not isinstance(meta, dict) or "progressToken" not in meta:
        return caller
    return caller._replace(passed_on={"_meta": {key: value for key, value in meta.items() if key != "progressToken"}})


class _ProgressTold:
    """Tells a client of a task's progress."""

    def __init__(self, caller: Caller) -> None:
        meta = caller.passed_on.get("_meta")
        self._token = meta.get("progressToken") if isinstance(meta, dict) else None
        self._link = caller.link
        self._said = ""
        self._steps = 0

    async def tell(self, task: Mapping[str, Any]) -> None:
        message = task.get("statusMessage")
        if self._token is None or self._link is None or not isinstance(message, str) or message == self._said:
            return
        self._said = message
        self._steps += 1
        told = {"progressToken": self._token, "progress": self._steps, "message": shortened(message, _LONGEST_MESSAGE)}
        await self._link.tell("notifications/progress", told)
