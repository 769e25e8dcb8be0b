"""Records one act: a context entered before it, given the details during it, and added to the trail on exit.

Used by the gateway and the relay around each request that reaches a server. Keeps only sizes and hashes of arguments
and results, unless the trail wants arguments. Never fails or delays the act. `outcome_of` maps an error to an outcome,
for history and audit alike.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from opentelemetry.context import get_current
from opentelemetry.trace import get_current_span

from mcp_optimizer.access.audit.digests import digest_of_arguments, digest_of_result
from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.decisions import Decision
from mcp_optimizer.domain.events import Outcome
from mcp_optimizer.domain.result_type import is_input_required, is_task
from mcp_optimizer.errors import (
    CallInterrupted,
    CallRefused,
    CallTimeout,
    OptimizerError,
    RequestError,
    ServerUnavailable,
    ToolHeld,
    TooManyCalls,
    UpstreamRefusal,
)
from mcp_optimizer.runtime.patterns import regex

if TYPE_CHECKING:
    from mcp_optimizer.access.audit.trail import AuditTrail

_OUTCOMES: tuple[tuple[type[OptimizerError], Outcome], ...] = (
    (CallTimeout, Outcome.TIMEOUT),
    (ServerUnavailable, Outcome.UNAVAILABLE),
    (CallInterrupted, Outcome.UNAVAILABLE),
    (UpstreamRefusal, Outcome.REFUSED),
    (CallRefused, Outcome.DENIED),
    (ToolHeld, Outcome.DENIED),
    (TooManyCalls, Outcome.DENIED),
    (RequestError, Outcome.BAD_REQUEST),
)


def outcome_of(error: BaseException | None, result: Mapping[str, Any] | None) -> Outcome:
    """The outcome of a call that raised the error, or returned the result."""
    if error is not None:
        return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), Outcome.FAILED)
    if result is None:
        return Outcome.FAILED
    return Outcome.TOOL_ERROR if result.get("isError") else Outcome.OK


logger = logging.getLogger(__name__)

_TRACE = regex(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_CREDENTIALS = regex(r"([^:?#]*:[/\\]*+)[^?#]*@")
"""Matches up to the last @, because a password may contain an @ or a slash."""
_AFTER = regex(r"(?:[?#;]|%3F|%23).*", re.DOTALL | re.IGNORECASE)
_NO_TRACE = "0" * 32
_MOST_TOKENS = 10**12

_Result = TypeVar("_Result", bound=Mapping[str, Any])


class Recording:
    """The details known so far. Details that are not given keep their defaults: allowed, by no rule."""

    __slots__ = ("_about", "_arguments", "_at", "_caller", "_decision", "_method", "_result", "_started",
                 "_trail", "_who")  # fmt: skip

    def __init__(self, trail: AuditTrail | None, caller: Caller, method: str) -> None:
        self._trail = trail
        self._caller = caller
        self._method = method
        self._about = ("", "", "")
        self._arguments: Any = None
        self._decision: Decision | None = None
        self._who = ""
        self._result: Mapping[str, Any] | None = None
        self._at = time.time()
        self._started = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if self._trail is None:
            return
        if isinstance(error, TooManyCalls):
            # A caller can send any number of these, so they are counted, not listed.
            self._trail.refused(429, "calls per minute")
            return
        milliseconds = round((time.perf_counter() - self._started) * 1_000, 3)
        self._trail.afterwards.do(partial(self._add, self._trail, error, milliseconds, trace_id(self._caller)))

    def _add(self, trail: AuditTrail, error: BaseException | None, milliseconds: float, trace: str) -> None:
        try:
            trail.add(self._entry(trail, error, milliseconds, trace))
        except Exception:
            # The caller gets its answer even if recording fails.
            logger.exception("Cannot record what happened in the audit")

    def leave_out(self) -> None:
        """Record nothing of this act, because its parts are recorded."""
        self._trail = None

    def about(self, server: str, tool: str, definition_hash: str = "", arguments: Any = None) -> None:
        """Note what the act uses, and its arguments; the last call counts."""
        self._about = (server, tool, definition_hash)
        self._arguments = arguments

    def decided(self, decision: Decision) -> None:
        """Note what the rules decided."""
        self._decision = decision

    def approved_by(self, who: str) -> None:
        """Note the person who agreed to the act."""
        self._who = who

    def result(self, result: _Result) -> _Result:
        """Note the result that is sent to the caller, and return it."""
        self._result = result
        return result

    def _entry(self, trail: AuditTrail, error: BaseException | None, milliseconds: float, trace: str) -> AuditEntry:
        caller, decision, result = self._caller, self._decision, self._result
        session, client = trail.labels.of(caller)
        digest = digest_of_arguments(self._arguments)
        server, tool, definition_hash = self._about
        return AuditEntry(
            round(self._at * 1_000),
            caller.principal.name_in_audit,
            caller.principal.tenant,
            client,
            session,
            self._method,
            server,
            tool,
            str(decision.risk.risk) if decision is not None else "",
            str(decision.effect) if decision is not None else "allow",
            decision.because if decision is not None else "",
            self._who,
            self._outcome(error),
            len(digest.json),
            digest.hash,
            digest.text if trail.keeps_arguments and digest.hash else None,
            _tokens(result) if result is not None else 0,
            digest_of_result(result) if result is not None else "",
            milliseconds,
            definition_hash,
            trace,
        )

    def _outcome(self, error: BaseException | None) -> str:
        result = self._result
        if error is None:
            if result is None:
                # The act returns nothing, as for a subscription.
                return str(Outcome.OK)
            if is_input_required(result):
                return "input required"
            if is_task(result):
                return "task"
        elif isinstance(error, CallRefused) and self._decision is not None:
            return "denied" if self._decision.is_denied else "declined"
        elif isinstance(error, asyncio.CancelledError):
            return "cancelled"
        return str(outcome_of(error, result))


def recording(trail: AuditTrail | None, caller: Caller, method: str) -> Recording:
    """The context for one act; records nothing if there is no trail, or none that is written."""
    return Recording(trail if trail is not None and trail.is_on else None, caller, method)


def used_by(params: Mapping[str, Any]) -> str:
    """What a request other than a tool call uses: the name of a prompt, or the URI of a resource.

    Possible secrets are removed: credentials, and everything after a question mark, hash or semicolon.
    """
    named = params.get("ref", params)
    name = named.get("name", named.get("uri")) if isinstance(named, Mapping) else None
    if not isinstance(name, str):
        return ""
    if (found := _CREDENTIALS.match(name)) is not None:
        name = f"{found[1]}{name[found.end() :]}"
    return _AFTER.sub("", name)


def trace_id(caller: Caller) -> str:
    """The trace that the client names for its request, otherwise our own."""
    meta = caller.passed_on.get("_meta")
    parent = meta.get("traceparent") if isinstance(meta, dict) else None
    if isinstance(parent, str) and (found := _TRACE.fullmatch(parent)) and found[1] != _NO_TRACE:
        return found[1]
    if not get_current():
        # Without tracing the context is empty, which is much faster to check than the span.
        return ""
    own = get_current_span().get_span_context()
    return f"{own.trace_id:032x}" if own.is_valid else ""


def _tokens(result: Mapping[str, Any]) -> int:
    """The cost in tokens that the result states."""
    meta = result.get("_meta")
    tokens = meta.get("tokens") if isinstance(meta, dict) else None
    number = tokens.get("estimated") if isinstance(tokens, dict) else None
    return number if isinstance(number, int) and 0 <= number <= _MOST_TOKENS else 0
