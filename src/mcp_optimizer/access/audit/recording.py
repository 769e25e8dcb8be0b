"""Records one act while it happens: entered before it, given the details, and added to the trail on exit.

Used around each request that reaches a server, by the gateway and the relay. Keeps nothing of arguments and results but
sizes and hashes, unless the trail wants arguments. Never fails or delays the act. `outcome_of` maps an error to an
outcome, for history and audit alike.
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
from mcp_optimizer.domain.result_type import is_input_required
from mcp_optimizer.errors import (
    CallInterrupted,
    CallRefused,
    CallTimeout,
    OptimizerError,
    RequestError,
    ServerUnavailable,
    TooManyCalls,
    UpstreamRefusal,
)

if TYPE_CHECKING:
    from mcp_optimizer.access.audit.trail import AuditTrail

_OUTCOMES: tuple[tuple[type[OptimizerError], Outcome], ...] = (
    (CallTimeout, Outcome.TIMEOUT),
    (ServerUnavailable, Outcome.UNAVAILABLE),
    (CallInterrupted, Outcome.UNAVAILABLE),
    (UpstreamRefusal, Outcome.REFUSED),
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

_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_CREDENTIALS = re.compile(r"([^:?#]*:[/\\]*+)[^?#]*@")
"""Up to the last @, because a password may contain one, or a slash."""
_AFTER = re.compile(r"(?:[?#;]|%3F|%23).*", re.DOTALL | re.IGNORECASE)
_NO_TRACE = "0" * 32
_MOST_TOKENS = 10**12

_Result = TypeVar("_Result", bound=Mapping[str, Any])


class Recording:
    """What is known so far. Whatever is not said keeps its default: allowed, by no rule."""

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
            # As many as somebody likes to send: counted, not listed.
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

    def about(self, server: str, tool: str, definition_hash: str = "", arguments: Any = None) -> None:
        """What is used, and with what; said again, the last counts."""
        self._about = (server, tool, definition_hash)
        self._arguments = arguments

    def decided(self, decision: Decision) -> None:
        """What the rules say."""
        self._decision = decision

    def approved_by(self, who: str) -> None:
        """Who was asked, and said yes."""
        self._who = who

    def result(self, result: _Result) -> _Result:
        """What is sent to the caller."""
        self._result = result
        return result

    def _entry(self, trail: AuditTrail, error: BaseException | None, milliseconds: float, trace: str) -> AuditEntry:
        caller, decision, result = self._caller, self._decision, self._result
        session, client = trail.labels.of(caller)
        digest = digest_of_arguments(self._arguments)
        server, tool, definition_hash = self._about
        return AuditEntry(
            round(self._at * 1_000),
            caller.principal.name,
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
                # There is nothing to return, as for a subscription.
                return str(Outcome.OK)
            if is_input_required(result):
                return "input required"
        elif isinstance(error, CallRefused) and self._decision is not None:
            return "denied" if self._decision.is_denied else "declined"
        elif isinstance(error, asyncio.CancelledError):
            return "cancelled"
        return str(outcome_of(error, result))


def recording(trail: AuditTrail | None, caller: Caller, method: str) -> Recording:
    """Entered around an act; without a trail that is written, nothing comes of it."""
    return Recording(trail if trail is not None and trail.is_on else None, caller, method)


def used_by(params: Mapping[str, Any]) -> str:
    """What a request that is not about tools uses: a prompt by its name, a resource by its URI.

    Without what may be secret: credentials, and what follows a question mark or semicolon, which are arguments.
    """
    named = params.get("ref", params)
    name = named.get("name", named.get("uri")) if isinstance(named, Mapping) else None
    if not isinstance(name, str):
        return ""
    if (found := _CREDENTIALS.match(name)) is not None:
        name = f"{found[1]}{name[found.end() :]}"
    return _AFTER.sub("", name)


def trace_id(caller: Caller) -> str:
    """The trace that the client says its request belongs to, or else our own."""
    meta = caller.passed_on.get("_meta")
    parent = meta.get("traceparent") if isinstance(meta, dict) else None
    if isinstance(parent, str) and (found := _TRACE.fullmatch(parent)) and found[1] != _NO_TRACE:
        return found[1]
    if not get_current():
        # Without tracing there is nothing in the context, which takes a fraction of the time to see.
        return ""
    own = get_current_span().get_span_context()
    return f"{own.trace_id:032x}" if own.is_valid else ""


def _tokens(result: Mapping[str, Any]) -> int:
    """The cost that the result states."""
    meta = result.get("_meta")
    tokens = meta.get("tokens") if isinstance(meta, dict) else None
    number = tokens.get("estimated") if isinstance(tokens, dict) else None
    return number if isinstance(number, int) and 0 <= number <= _MOST_TOKENS else 0
