"""Tasks: clients that declare them ask for the results of calls that take long, and hear of changes if they listen.

The gateway's ids lead to the server and its own id (`gateway/tasks`). A server is asked for a task when its client
asks, and, while a client listens for the task, at the interval that the server suggests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.exceptions import MCPError

from mcp_optimizer.access.audit.recording import recording
from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.extensions import TASKS
from mcp_optimizer.domain.kept_results import KeptTask
from mcp_optimizer.errors import OptimizerError, UpstreamRefusal
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.tasks import TaskRequests
from mcp_optimizer.results.metadata import without_ours
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.extensions.announcing import Method, Settings, check_name_header, missing, text_in
from mcp_optimizer.serving.relay.connected import Context
from mcp_optimizer.upstream.questions import named
from mcp_optimizer.upstream.tasks import ENDED, pause_of

logger = logging.getLogger(__name__)

_LISTENED = 1.0
"""Minimum seconds between two questions to a server about a task that a client listens for."""

_LONGEST_ID = 300
_SHOWN = ("status", "statusMessage", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs")


class Tasks:
    """Answers requests about tasks."""

    identifier = TASKS
    is_modern_only = True

    def __init__(self, gateway: Gateway, requests: TaskRequests, trail: AuditTrail | None = None) -> None:
        self._gateway = gateway
        self._requests = requests
        self._trail = trail
        self._following = BackgroundTasks(logger, "A client cannot be told of its task", expected=(OptimizerError,))
        self.methods: Mapping[str, Method] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    def declared(self, settings: Iterable[Settings], caller: Caller) -> Settings | None:
        del caller
        return {} if any(True for _ in settings) else None

    async def _get(self, ctx: Context, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        task_id, kept = await self._meant(ctx, params, caller)
        return await self._state(task_id, kept, caller)

    async def _update(self, ctx: Context, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        _, kept = await self._meant(ctx, params, caller)
        given = params.get("inputResponses")
        if not isinstance(given, dict):
            raise MCPError(types.INVALID_PARAMS, "inputResponses is required and must be an object.")
        return await self._pass(kept, "tasks/update", {"inputResponses": given}, caller)

    async def _cancel(self, ctx: Context, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        _, kept = await self._meant(ctx, params, caller)
        return await self._pass(kept, "tasks/cancel", {}, caller)

    async def _meant(self, ctx: Context, params: Mapping[str, Any], caller: Caller) -> tuple[str, KeptTask]:
        if not caller.wants_tasks:
            raise missing(TASKS)
        task_id = text_in(params, "taskId", _LONGEST_ID)
        check_name_header(ctx, task_id)
        return task_id, await self._requests.find(task_id, caller)

    async def _pass(self, kept: KeptTask, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        with recording(self._trail, caller, method) as record:
            record.about(kept.server, kept.tool, arguments=params)
            self._gateway.permissions.take_turn(caller)
            await self._requests.ask(kept, method, params, _about_task(caller))
            return record.result({})

    async def _state(self, task_id: str, kept: KeptTask, caller: Caller) -> dict[str, Any]:
        """A task as its client sees it: under our id, with the server named in questions, and its result in limits."""
        caller = _about_task(caller)
        found = without_ours(await self._requests.ask(kept, "tasks/get", {}, caller))
        state = {**{key: found[key] for key in _SHOWN if key in found}, "taskId": task_id}
        state.setdefault("ttlMs", None)
        if isinstance(meta := found.get("_meta"), dict):
            state["_meta"] = {key: value for key, value in meta.items() if key != types.SERVER_INFO_META_KEY}
        status = found.get("status")
        if status == "completed":
            result = found.get("result")
            state["result"] = await self._requests.result(kept, result if isinstance(result, dict) else {}, caller)
        elif status == "failed":
            error = found.get("error")
            state["error"] = (
                error if isinstance(error, dict) else {"code": types.INTERNAL_ERROR, "message": "It failed."}
            )
        elif status == "input_required":
            asked = found.get("inputRequests")
            state["inputRequests"] = {key: _from_server(kept.server, request) for key, request in (asked or {}).items()}
        elif status not in ("working", "cancelled"):
            text = "The server's task has a status that the protocol does not know."
            raise UpstreamRefusal(kept.server, types.INTERNAL_ERROR, text)
        return state

    async def listening(self, ctx: Context, call_next: CallNext, caller: Caller) -> HandlerResult:
        """Tell a client that listens for tasks of their changes, while it listens."""
        wanted = (ctx.params or {}).get("notifications")
        asked = wanted.get("taskIds") if isinstance(wanted, Mapping) else None
        if asked is None:
            return await call_next(ctx)
        if not caller.wants_tasks:
            raise missing(TASKS)
        most = self._gateway.limits.subscriptions
        if not isinstance(asked, list) or len(asked) > most or not all(isinstance(one, str) for one in asked):
            raise MCPError(types.INVALID_PARAMS, f"taskIds must be a list of at most {most:,} ids.")
        kept: dict[str, KeptTask] = {}
        for task_id in asked:
            try:
                kept[task_id] = await self._requests.find(task_id, caller)
            except OptimizerError:
                # Tasks that are not this caller's are left out, as resources are that it may not read.
                continue
        following: list[asyncio.Task[None]] = []

        def begin() -> None:
            following.extend(
                self._following.spawn(self._follow(ctx, task_id, one, caller)) for task_id, one in kept.items()
            )

        session: Any = _Acknowledging(ctx.session, list(kept), begin)
        try:
            return await call_next(replace(ctx, session=session))
        finally:
            for task in following:
                task.cancel()

    async def _follow(self, ctx: Context, task_id: str, kept: KeptTask, caller: Caller) -> None:
        """Tell a client of each change of one task, until it ends."""
        told: tuple[Any, ...] | None = None
        meta = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        while True:
            state = await self._state(task_id, kept, caller)
            now = tuple(state.get(key) for key in (*_SHOWN[:4], "inputRequests"))
            if now != told:
                told = now
                params = {**state, "_meta": {**state.get("_meta", {}), **meta}}
                notice: Any = types.Notification[dict[str, Any], str](method="notifications/tasks", params=params)
                await ctx.session.send_notification(notice, related_request_id=ctx.request_id)
            if state["status"] in ENDED:
                return
            await asyncio.sleep(max(pause_of(state), _LISTENED))


class _Acknowledging:
    """A session whose confirmation of what a client listens for also names its tasks."""

    def __init__(self, session: Any, task_ids: list[str], begin: Any) -> None:
        """`begin` is called after the confirmation, which must be the first message."""
        self._session = session
        self._task_ids = task_ids
        self._begin = begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        send = partial(self._session.send_notification, related_request_id=related_request_id)
        if not isinstance(notification, types.SubscriptionsAcknowledgedNotification):
            await send(notification)
            return
        said = notification.model_dump(by_alias=True, exclude_none=True, mode="json")
        said["params"]["notifications"]["taskIds"] = self._task_ids
        acknowledged: Any = types.Notification[dict[str, Any], str](method=said["method"], params=said["params"])
        await send(acknowledged)
        self._begin()


def _about_task(caller: Caller) -> Caller:
    """The caller of a request about a task, which passes on nothing that belongs to a call."""
    meta = caller.passed_on.get("_meta")
    kept = {key: value for key, value in meta.items() if key != "progressToken"} if isinstance(meta, dict) else {}
    return caller._replace(passed_on={"_meta": kept} if kept else {}, is_orphaned=False)


def _from_server(server: str, request: Any) -> Any:
    """A question of a task, with its server's name in it."""
    if not isinstance(request, dict):
        return request
    params = request.get("params")
    return {**request, "params": named(server, str(request.get("method")), params if isinstance(params, dict) else {})}
