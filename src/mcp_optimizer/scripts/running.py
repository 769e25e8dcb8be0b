"""Runs one script for one caller and makes its result. Called by serving, the library and the command line.

Knows no transport. What a script does outside its worker is calls of tools, and each of them is a call of the gateway
for the same caller.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.domain.script_mode import SCRIPT_META_KEY, ScriptMode
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.scripts.clock import ScriptClock
from mcp_optimizer.scripts.driving import Driver
from mcp_optimizer.scripts.inner_calls import Allowed, InnerCalls, TooManyInnerCalls
from mcp_optimizer.scripts.names import Toolbox, Toolboxes
from mcp_optimizer.scripts.printed import Printed
from mcp_optimizer.scripts.progress import Progress
from mcp_optimizer.scripts.replies import failure, reason_of, reply
from mcp_optimizer.scripts.source import Source, read_source
from mcp_optimizer.scripts.worker_code import setup
from mcp_optimizer.scripts.workers import Workers

REPLY_TOKENS = 5_000
"""Tokens of a script's result that are sent; read_result has the rest."""

_MOST_NAMED = 50
"""Tools that a request may name in `may_change`."""


class Checker(Protocol):
    """Finds mistakes in a script before anything is called."""

    async def refusals(self, script: str, toolbox: Toolbox, variables: Collection[str]) -> Sequence[str]: ...
    async def close(self) -> None: ...


class ScriptRunner:
    """Runs scripts."""

    def __init__(
        self,
        gateway: Gateway,
        mode: ScriptMode,
        limits: Limits = DEFAULT_LIMITS,
        workers: Workers | None = None,
        checker: Checker | None = None,
    ) -> None:
        self._gateway = gateway
        self.mode = mode
        self._limits = limits
        self._toolboxes = Toolboxes()
        self._workers = workers or Workers(limits)
        self._checker = checker

    async def close(self) -> None:
        """End the workers."""
        await self._workers.close()
        if self._checker is not None:
            await self._checker.close()

    async def toolbox(self, caller: Caller) -> Toolbox:
        """The tools that a caller's script may name."""
        return self._toolboxes.of(await self._gateway.seen_by(caller))

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
        started = time.perf_counter()
        arguments = arguments or {}
        toolbox = await self.toolbox(caller)
        source = read_source(script, toolbox, self._limits.script_characters, arguments)
        allowed = await self._allowed(mode or self.mode, may_change, toolbox, caller)
        self._refuse(source, allowed, toolbox, caller)
        await self._check(source, toolbox, arguments)
        result, calls = await self._run(source, arguments, toolbox, allowed, caller)
        sent = await self._gateway.results.within(result, caller, started, REPLY_TOKENS)
        return _with_account(sent, calls)

    async def _allowed(self, mode: ScriptMode, named: Sequence[str], toolbox: Toolbox, caller: Caller) -> Allowed:
        """What this script may call; every tool that it may change something with must exist."""
        if len(named) > _MOST_NAMED:
            raise InvalidRequest(f"may_change names at most {_MOST_NAMED} tools.")
        permissions, snapshot = self._gateway.permissions, self._gateway.snapshot
        found = [toolbox.named(name) or await permissions.resolve(snapshot, name, None, caller) for name in named]
        return Allowed(mode, frozenset(tool.key for tool in found))

    def _refuse(self, source: Source, allowed: Allowed, toolbox: Toolbox, caller: Caller) -> None:
        """Raises InvalidRequest if the script names a tool that it may not call: before anything is called."""
        decide = self._gateway.permissions.views.decide
        for site in source.sites:
            risk = decide(caller, site.tool).risk.risk
            if risk is Risk.READ:
                continue
            refusal = allowed.refusal(toolbox.spelling(site.tool), site.tool, risk)
            if refusal is not None:
                raise InvalidRequest(f"line {site.line}: {refusal} Nothing was called.")

    async def _check(self, source: Source, toolbox: Toolbox, variables: Collection[str]) -> None:
        problems = await self._checker.refusals(source.script, toolbox, variables) if self._checker is not None else ()
        if problems:
            raise InvalidRequest("\n".join(["The script was not run, and nothing was called:", *problems]))

    async def _run(
        self, source: Source, arguments: Mapping[str, Any], toolbox: Toolbox, allowed: Allowed, caller: Caller
    ) -> tuple[dict[str, Any], InnerCalls]:
        limits = self._limits
        clock, printed, progress = ScriptClock(limits.script_seconds), Printed(limits.script_output), Progress(caller)
        calls = InnerCalls(self._gateway, toolbox, _inner(caller), allowed, limits, progress)
        before = f"{setup(source.servers, arguments, limits.script_calls)}\n_mo_limit = {limits.script_output}"
        try:
            async with self._workers.session(caller.key) as session, clock:
                value = await Driver(session, calls, printed).run(before, source.code)
        except _endings() as error:
            if isinstance(error, TimeoutError) and not clock.is_over:
                raise
            return failure(reason_of(error, limits), printed.text, calls), calls
        return reply(printed.text, value, is_cut=printed.is_cut), calls


def _endings() -> tuple[type[Exception], ...]:
    """How a script ends that does not reach its end; read when something was raised, so that nothing is imported
    before.
    """
    from pydantic_monty import MontyError

    return (MontyError, TooManyInnerCalls, TimeoutError)


def _inner(caller: Caller) -> Caller:
    """The caller of the script's calls: whatever of the request was about the script itself is not passed on."""
    meta = caller.passed_on.get("_meta")
    kept = {key: value for key, value in meta.items() if key != "progressToken"} if isinstance(meta, Mapping) else {}
    return replace(caller, passed_on={"_meta": kept} if kept else {})


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
