"""Runs one script for one caller and makes its result. Called by serving, the library and the command line.

Knows no transport. What a script does outside its worker is calls of tools, and each of them is a call of the gateway
for the same caller.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.domain.result_type import ANSWERS
from mcp_optimizer.domain.script_mode import SCRIPT_META_KEY, ScriptMode
from mcp_optimizer.errors import CallRefused, InvalidRequest, RequestError
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.scripts.asking import ScriptLink
from mcp_optimizer.scripts.checked import Checked
from mcp_optimizer.scripts.clock import ScriptClock
from mcp_optimizer.scripts.driving import Driver
from mcp_optimizer.scripts.inner_calls import Allowed, InnerCalls, TooManyInnerCalls
from mcp_optimizer.scripts.names import Toolbox, Toolboxes
from mcp_optimizer.scripts.printed import Printed
from mcp_optimizer.scripts.progress import Progress
from mcp_optimizer.scripts.replies import failure, reason_of, remarks_on, reply
from mcp_optimizer.scripts.source import NoSuchTool, ScriptSource, read_source
from mcp_optimizer.scripts.suspending import ScriptAttempt, WaitingScripts
from mcp_optimizer.scripts.turns import ScriptTurn
from mcp_optimizer.scripts.worker_code import setup
from mcp_optimizer.scripts.workers import Workers

REPLY_TOKENS = 5_000
"""Tokens of a script's result that are sent; read_result has the rest."""

_QUICKLY_READ = 2_000
"""Characters of a script that is read at once. A longer one goes to a thread."""

_RESULTS_HELD = 2
"""How many of the largest results wait in this process until their script takes them."""

_MOST_NAMED = 50
"""Tools that a request may name in `may_change`."""


class Checker(Protocol):
    """Finds mistakes in a script before anything is called."""

    async def check(self, script: str, toolbox: Toolbox, variables: Collection[str], principal: str) -> Checked: ...


@dataclass(frozen=True)
class _Job:
    """A script that is ready to run, and for whom."""

    source: ScriptSource
    arguments: Mapping[str, Any]
    toolbox: Toolbox
    allowed: Allowed
    checked: Checked
    client: str
    """Identifies the client's connection."""
    started: float


class ScriptRunner:
    """Runs scripts."""

    def __init__(
        self,
        gateway: Gateway,
        mode: ScriptMode,
        limits: Limits = DEFAULT_LIMITS,
        waiting: WaitingScripts | None = None,
        checker: Checker | None = None,
    ) -> None:
        self._gateway = gateway
        self.mode = mode
        self._limits = limits
        self._toolboxes = Toolboxes()
        self._workers = Workers(limits)
        self._waiting = waiting or WaitingScripts()
        self._checker = checker
        self._reading = asyncio.Lock()

    async def close(self) -> None:
        """End the scripts that wait for answers, and the workers."""
        await self._waiting.close()
        await self._workers.close()

    async def toolbox(self, caller: Caller) -> Toolbox:
        """The tools that a caller's script may name."""
        return self._toolboxes.of(await self._gateway.seen_by(caller), self._gateway.built_in.has)

    async def check(self, script: str, toolbox: Toolbox, variables: Collection[str] = ()) -> Checked:
        """What would keep a script from being run, given these tools and variables; nothing is called."""
        try:
            source = await self._source(script, toolbox, variables)
        except InvalidRequest as error:
            return Checked(unreadable=str(error).removesuffix(" Nothing was called."))
        return await self._check(source, toolbox, variables, LOCAL.principal.id)

    async def run(
        self,
        script: str,
        caller: Caller,
        *,
        may_change: Sequence[str] = (),
        arguments: Mapping[str, Any] | None = None,
        mode: ScriptMode | None = None,
    ) -> dict[str, Any]:
        """The script's result as a tool's result. `may_change` names the tools that change something and may be called;
        `arguments` are variables of the script; `mode` is that of the settings if not given.
        """
        arguments = arguments or {}
        params = {"script": script, "may_change": list(may_change), "arguments": dict(arguments)}
        if any(answer in caller.passed_on for answer in ANSWERS):
            return await self._waiting.go_on(params, caller)
        started = time.perf_counter()
        toolbox = await self.toolbox(caller)
        source = await self._read(script, toolbox, arguments, caller)
        allowed = await self._allowed(mode or self.mode, may_change, toolbox, caller)
        self._refuse(source, allowed, toolbox, caller)
        checked = await self._check(source, toolbox, arguments, caller.principal.id)
        if refusals := checked.refusals:
            raise InvalidRequest("\n".join(["The script was not run, and nothing was called:", *refusals]))
        job = _Job(source, arguments, toolbox, allowed, checked, caller.conversation, started)
        if caller.link is None or not caller.link.is_modern or caller.is_parked:
            # A stored script whose caller was asked whether it may run is parked already.
            return await self._done(job, caller, ScriptAttempt())
        # Such a client is asked by the result of its request, which another request then continues.
        return await self._waiting.begin(params, caller, partial(self._done, job))

    async def _read(self, script: str, toolbox: Toolbox, variables: Collection[str], caller: Caller) -> ScriptSource:
        try:
            return await self._source(script, toolbox, variables)
        except NoSuchTool as error:
            server = next(iter(toolbox.servers[error.server].values())).server
            try:
                # Says why, if the rules keep the tool from this caller.
                await self._gateway.permissions.resolve(self._gateway.snapshot, error.tool, server, caller)
            except CallRefused:
                raise
            except RequestError:
                pass
            raise

    async def _source(self, script: str, toolbox: Toolbox, variables: Collection[str]) -> ScriptSource:
        longest = self._limits.script_characters
        if not _QUICKLY_READ < len(script) <= longest:
            return read_source(script, toolbox, longest, variables)
        # One at a time: threads that compute would take turns with the event loop, and everybody would wait.
        async with self._reading:
            return await asyncio.to_thread(read_source, script, toolbox, longest, variables)

    async def _done(self, job: _Job, caller: Caller, attempt: ScriptAttempt) -> dict[str, Any]:
        """Run a script to its end."""
        clock, turn = ScriptClock(self._limits.script_seconds), self._workers.turn(caller.key)
        inner = _inner(caller, job.client, clock, turn)
        calls = InnerCalls(self._gateway, job.toolbox, inner, job.allowed, self._limits, Progress(caller))
        attempt.began(calls)
        result = await self._run(job, turn, clock, calls)
        return _with_account(await self._gateway.results.within(result, caller, job.started, REPLY_TOKENS), calls)

    async def _allowed(self, mode: ScriptMode, named: Sequence[str], toolbox: Toolbox, caller: Caller) -> Allowed:
        """What this script may call; every tool that it may change something with must exist."""
        if len(named) > _MOST_NAMED:
            raise InvalidRequest(f"may_change names at most {_MOST_NAMED} tools.")
        permissions, snapshot = self._gateway.permissions, self._gateway.snapshot
        found = [toolbox.named(name) or await permissions.resolve(snapshot, name, None, caller) for name in named]
        return Allowed(mode, frozenset(tool.key for tool in found))

    def _refuse(self, source: ScriptSource, allowed: Allowed, toolbox: Toolbox, caller: Caller) -> None:
        """Raises InvalidRequest if the script names a tool that it may not call: before anything is called."""
        decide = self._gateway.permissions.views.decide
        for mention in source.mentions:
            risk = decide(caller, mention.tool).risk.risk
            if risk is Risk.READ:
                continue
            refusal = allowed.refusal(toolbox.spelling(mention.tool), mention.tool, risk)
            if refusal is not None:
                raise InvalidRequest(f"line {mention.line}: {refusal} Nothing was called.")

    async def _check(
        self, source: ScriptSource, toolbox: Toolbox, variables: Collection[str], principal: str
    ) -> Checked:
        if self._checker is None:
            return Checked()
        return await self._checker.check(source.script, toolbox, variables, principal)

    async def _run(self, job: _Job, turn: ScriptTurn, clock: ScriptClock, calls: InnerCalls) -> dict[str, Any]:
        limits = self._limits
        printed = Printed(limits.script_output)
        before = setup(job.source.servers, job.arguments, limits.script_calls, limits.script_output)
        try:
            async with self._workers.session(turn) as session, clock:
                held = _RESULTS_HELD * limits.script_result_bytes
                value = await Driver(session, calls, printed, held).run(before, job.source.code)
        except _endings() as error:
            if isinstance(error, TimeoutError) and not clock.is_over:
                raise
            return failure([reason_of(error, limits), *remarks_on(error, job.checked)], printed.text, calls)
        return reply(printed.text, value, is_cut=printed.is_cut)


def _endings() -> tuple[type[Exception], ...]:
    """How a script ends that does not reach its end; read when something was raised, so that nothing is imported
    before.
    """
    from pydantic_monty import MontyError

    return (MontyError, TooManyInnerCalls, TimeoutError)


def _inner(caller: Caller, client: str, clock: ScriptClock, turn: ScriptTurn) -> Caller:
    """The caller of the script's calls: whatever of the request was about the script itself is not passed on."""
    meta = caller.passed_on.get("_meta")
    kept = {key: value for key, value in meta.items() if key != "progressToken"} if isinstance(meta, Mapping) else {}
    link = None if caller.link is None else ScriptLink(caller.link, client, clock, turn)
    return caller._replace(link=link, passed_on={"_meta": kept} if kept else {})


def _with_account(result: dict[str, Any], calls: InnerCalls) -> dict[str, Any]:
    """The result, with what stayed out of the context."""
    meta = result.get("_meta") or {}
    sent = meta.get("tokens", {}).get("estimated", 0)
    account = {
        "calls": len(calls.notes),
        "changes": calls.changes,
        "innerTokens": calls.tokens,
        "keptOut": max(0, calls.tokens - sent),
    }
    return {**result, "_meta": {**meta, SCRIPT_META_KEY: account}}
