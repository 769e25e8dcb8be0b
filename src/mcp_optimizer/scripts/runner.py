"""Runs one script for one caller, keeps it while a modern client is asked, and words its result for the model.

Called by serving, the library and the command line. Knows no transport. Outside its worker a script can only call
tools, and each such call is a gateway call for the same caller.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

from mcp_optimizer.domain.caller import LOCAL, Caller, Risk
from mcp_optimizer.domain.extensions import ANSWERS, is_input_required
from mcp_optimizer.domain.own_tools import SCRIPT_META_KEY, ScriptMode
from mcp_optimizer.errors import CallNotWaiting, CallRefused, InvalidRequest, RequestError
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.nested_calls import Progress, inner
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.scripts.driver import Driver, Printed, setup
from mcp_optimizer.scripts.inner_calls import AllowedTools, InnerCalls, TooManyInnerCalls
from mcp_optimizer.scripts.interpreter import told
from mcp_optimizer.scripts.names import Toolbox, Toolboxes
from mcp_optimizer.scripts.problems import CheckResult
from mcp_optimizer.scripts.source import NoSuchTool, ScriptSource, read_source
from mcp_optimizer.scripts.workers import ScriptClock, ScriptLink, ScriptTurn, Workers
from mcp_optimizer.upstream.questions import ParkedCalls, Request

# Keeps scripts that wait for a modern client's answers between two of its requests. A question during a script
# becomes an input-required result; the script stays in its worker until the client calls again with the answers.
# Meanwhile the client holds a sealed token with the script's name and progress: after a restart the gateway can say
# what happened, and it never runs anything that a client sends back.

Key = Callable[[], Awaitable[bytes | None]]
"""Reads the key of the gateway's database; None if there is none."""

_LONGEST_STATE = 500


class ScriptAttempt:
    """One run of a script and its progress so far."""

    def __init__(self) -> None:
        self._calls: InnerCalls | None = None

    def began(self, calls: InnerCalls) -> None:
        """Sets the object through which the script makes its calls."""
        self._calls = calls

    @property
    def counts(self) -> tuple[int, int]:
        """How many calls it made, and how many of them may have changed something."""
        notes = self._calls.notes if self._calls is not None else []
        return len(notes), sum(note.changes for note in notes)


Make = Callable[[Caller, ScriptAttempt], Coroutine[Any, Any, dict[str, Any]]]


async def _no_key() -> bytes | None:
    return None


@dataclass(frozen=True)
class _Left:
    """The token that a client brings back: the waiting script, its gateway's life, and the script's progress."""

    state: str
    life: str
    calls: int
    changes: int


class WaitingScripts:
    """The scripts that are suspended or may become so."""

    def __init__(self, parked: ParkedCalls | None = None, key: Key = _no_key) -> None:
        self._parked = parked or ParkedCalls()
        self._stored_key = key
        self._key: bytes | None = None
        self._life = secrets.token_hex(4)
        self._attempts: WeakValueDictionary[str, ScriptAttempt] = WeakValueDictionary()

    async def begin(self, params: Mapping[str, Any], caller: Caller, make: Make) -> dict[str, Any]:
        """Starts a script; returns its result or its first question."""
        attempt = ScriptAttempt()
        request = Request("", "run_script", params)
        result = await self._parked.begin(request, caller, lambda parked: make(parked, attempt))
        return await self._sealed(result, caller, attempt)

    async def go_on(self, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Passes answers to a waiting script; returns its result or its next question."""
        left = await self._opened(caller)
        caller = caller._replace(passed_on={**caller.passed_on, "requestState": left.state})
        if self._parked.find(caller) is None:
            raise InvalidRequest(_ended(left, is_this_life=left.life == self._life))
        attempt = self._attempts.get(left.state)
        result = await self._parked.go_on(Request("", "run_script", params), caller)
        return await self._sealed(result, caller, attempt)

    async def close(self) -> None:
        """Ends all waiting scripts, because the gateway stops and no answers will come."""
        await self._parked.close()

    async def _sealed(self, result: dict[str, Any], caller: Caller, attempt: ScriptAttempt | None) -> dict[str, Any]:
        if not is_input_required(result):
            return result
        state = result["requestState"]
        calls, changes = attempt.counts if attempt is not None else (0, 0)
        if attempt is not None:
            self._attempts[state] = attempt
        said = f"{state}.{self._life}.{calls}.{changes}"
        return {**result, "requestState": f"{said}.{await self._mac(said, caller)}"}

    async def _opened(self, caller: Caller) -> _Left:
        """Raises CallNotWaiting for any token that this gateway did not write for this caller."""
        given = caller.passed_on.get("requestState")
        said, _, mac = (
            given.rpartition(".") if isinstance(given, str) and len(given) <= _LONGEST_STATE else ("", "", "")
        )
        if not said or not hmac.compare_digest(mac.encode(), (await self._mac(said, caller)).encode()):
            raise CallNotWaiting
        state, life, calls, changes = said.rsplit(".", 3)
        return _Left(state, life, int(calls), int(changes))

    async def _mac(self, said: str, caller: Caller) -> str:
        if self._key is None:
            self._key = await self._stored_key() or secrets.token_bytes(16)
        text = f"{caller.key}\0{said}".encode("utf-8", "surrogatepass")
        return hmac.new(b"scripts" + self._key, text, hashlib.sha256).hexdigest()


def _ended(left: _Left, *, is_this_life: bool) -> str:
    why = "waited too long for an answer" if is_this_life else "was waiting when the gateway was restarted"
    made = "No tool was called." if not left.calls else f"It had made {left.calls} calls."
    changed = (
        f" {left.changes} of them may have changed something: look before you run it again." if left.changes else ""
    )
    return f"The script {why}, and ended. {made}{changed}"


CUT = "[More was printed than is kept: the end is missing.]"
_OF_THE_SCRIPT = "<python-input-1>"
_SYNCHRONOUS = regex(r"external function '\w+' cannot suspend in this synchronous context")
_OUT_OF_MEMORY = regex("MemoryError: (memory limit exceeded|the worker exceeded its memory limit)")


def reply(printed: str, value: str, *, is_cut: bool = False) -> dict[str, Any]:
    """The printed text, then the value of the last expression, as one text. `value` is as the worker shows it."""
    # The notice comes first, because models read the end of a long text last or never.
    shown = [CUT if is_cut else "", printed.rstrip("\n"), value[1:]]
    text = "\n".join(part for part in shown if part)
    return {"content": [{"type": "text", "text": text or "Done; nothing was printed or returned."}], "isError": False}


def failure(reasons: Sequence[str], printed: str, calls: InnerCalls) -> dict[str, Any]:
    """The reply for a failed script: the reasons, the calls that it made and the text that it printed."""
    parts = [*reasons, calls.summary()]
    if printed:
        parts.append(f"It had printed:\n{printed.rstrip()}")
    return {"content": [{"type": "text", "text": "\n".join(parts)}], "isError": True}


def reason_of(error: BaseException, limits: Limits) -> str:
    """Why a script ended, with its line; a long reason keeps both ends."""
    kind, message = type(error).__name__, str(error)
    if isinstance(error, TimeoutError):
        return f"The script was ended after {limits.script_seconds:g} seconds."
    if isinstance(error, TooManyInnerCalls):
        return f"The script was ended. {error}"
    if kind == "MontyCrashedError" or message.startswith("TimeoutError: feed time limit"):
        return f"The script was ended: it computed for more than {limits.script_cpu_seconds:g} seconds."
    if _OUT_OF_MEMORY.match(message):
        return f"The script was ended: its values need more than {limits.script_memory:,} bytes."
    # Inside the worker, a tool's error is a RuntimeError.
    message = told(re.sub("^RuntimeError: ", "ToolError: ", message))
    message = _SYNCHRONOUS.sub("a tool cannot be called here; call it in a loop or a comprehension", message)
    line = _line_of_script(error)
    return shortened(f"line {line}: {message}" if line else message, limits.script_error)


def remarks_on(error: BaseException, checked: CheckResult) -> list[str]:
    """Remarks from the script's check that may explain how it ended."""
    return checked.remarks(_line_of_script(error), is_of_a_tool=str(error).startswith("RuntimeError: "))


def _line_of_script(error: BaseException) -> int | None:
    """The innermost line that belongs to the script itself."""
    traceback = getattr(error, "traceback", None)
    frames = traceback() if callable(traceback) else []
    own = [frame.line for frame in frames if frame.filename == _OF_THE_SCRIPT]
    return own[-1] if own else None


def shortened(text: str, longest: int) -> str:
    """Both ends of a text that is too long."""
    half = (longest - 3) // 2
    return text if len(text) <= longest else f"{text[:half]} … {text[-half:]}"


REPLY_TOKENS = 5_000
"""Tokens of a script's result that are sent; read_result returns the rest."""

_QUICKLY_READ = 2_000
"""Characters of a script that is parsed directly. A longer one is parsed in a thread."""

_RESULTS_HELD = 2
"""How many of the largest results wait in this process until their scripts take them."""

_MOST_NAMED = 50
"""Tools that a request may list in `may_change`."""


class Checker(Protocol):
    """Finds mistakes in a script before it makes any call."""

    async def check(self, script: str, toolbox: Toolbox, variables: Collection[str], principal: str) -> CheckResult: ...


@dataclass(frozen=True)
class _Job:
    """A script that is ready to run, and its caller."""

    source: ScriptSource
    arguments: Mapping[str, Any]
    toolbox: Toolbox
    allowed: AllowedTools
    checked: CheckResult
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
        """Ends the scripts that wait for answers, and the workers."""
        await self._waiting.close()
        await self._workers.close()

    async def toolbox(self, caller: Caller) -> Toolbox:
        """The tools that a caller's script may name."""
        return self._toolboxes.of(await self._gateway.seen_by(caller), self._gateway.built_in.has)

    async def check(self, script: str, toolbox: Toolbox, variables: Collection[str] = ()) -> CheckResult:
        """The problems that would prevent a script from running with these tools and variables; calls nothing."""
        try:
            source = await self._source(script, toolbox, variables)
        except InvalidRequest as error:
            return CheckResult(unreadable=str(error).removesuffix(" Nothing was called."))
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
        """The script's result as a tool result. `may_change` lists the tools that change something and may be called;
        `arguments` become variables of the script; `mode` defaults to the settings.
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
            # A stored script whose caller had to approve it is parked already, so it is not parked again.
            return await self._done(job, caller, ScriptAttempt())
        # A modern client is asked through the result of its request, and continues with another request.
        return await self._waiting.begin(params, caller, partial(self._done, job))

    async def _read(self, script: str, toolbox: Toolbox, variables: Collection[str], caller: Caller) -> ScriptSource:
        try:
            return await self._source(script, toolbox, variables)
        except NoSuchTool as error:
            server = next(iter(toolbox.servers[error.server].values())).server
            try:
                # Raises the reason if the rules deny this caller the tool.
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
        # One script at a time: several computing threads would slow down the event loop, and with it every request.
        async with self._reading:
            return await asyncio.to_thread(read_source, script, toolbox, longest, variables)

    async def _done(self, job: _Job, caller: Caller, attempt: ScriptAttempt) -> dict[str, Any]:
        """Runs a script to its end."""
        clock, turn = ScriptClock(self._limits.script_seconds), self._workers.turn(caller.key)
        link = None if caller.link is None else ScriptLink(caller.link, job.client, clock, turn)
        calls = InnerCalls(self._gateway, job.toolbox, inner(caller, link), job.allowed, self._limits, Progress(caller))
        attempt.began(calls)
        result = await self._run(job, turn, clock, calls)
        return _with_account(await self._gateway.results.within(result, caller, job.started, REPLY_TOKENS), calls)

    async def _allowed(self, mode: ScriptMode, named: Sequence[str], toolbox: Toolbox, caller: Caller) -> AllowedTools:
        """The tools that this script may call; every tool that it names as changing something must exist."""
        if len(named) > _MOST_NAMED:
            raise InvalidRequest(f"may_change names at most {_MOST_NAMED} tools.")
        permissions, snapshot = self._gateway.permissions, self._gateway.snapshot
        found = [toolbox.named(name) or await permissions.resolve(snapshot, name, None, caller) for name in named]
        return AllowedTools(mode, frozenset(tool.key for tool in found))

    def _refuse(self, source: ScriptSource, allowed: AllowedTools, toolbox: Toolbox, caller: Caller) -> None:
        """Raises InvalidRequest before any call if the script names a tool that it may not call."""
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
    ) -> CheckResult:
        if self._checker is None:
            return CheckResult()
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
    """The exceptions by which a script ends early; looked up only after one was raised, so that nothing is imported
    before.
    """
    from pydantic_monty import MontyError

    return (MontyError, TooManyInnerCalls, TimeoutError)


def _with_account(result: dict[str, Any], calls: InnerCalls) -> dict[str, Any]:
    """The result, with an account of what stayed out of the context."""
    meta = result.get("_meta") or {}
    sent = meta.get("tokens", {}).get("estimated", 0)
    account = {
        "calls": len(calls.notes),
        "changes": calls.changes,
        "innerTokens": calls.tokens,
        "keptOut": max(0, calls.tokens - sent),
    }
    return {**result, "_meta": {**meta, SCRIPT_META_KEY: account}}
