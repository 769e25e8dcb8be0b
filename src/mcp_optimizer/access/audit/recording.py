"""Records one act: a context entered before it, given the details during it, and added to the trail on exit. Arguments
and results are recorded as hashes.

Used by the gateway and the relay around each request that reaches a server. Keeps only sizes and hashes of arguments
and results, unless the trail wants arguments. Never fails or delays the act. `outcome_of` maps an error to an outcome,
for history and audit alike.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from opentelemetry.context import get_current
from opentelemetry.trace import get_current_span

from mcp_optimizer.domain.audit import LONGEST_ARGUMENTS, AuditEntry
from mcp_optimizer.domain.caller import Caller, Decision
from mcp_optimizer.domain.events import Outcome
from mcp_optimizer.domain.extensions import is_input_required, is_task
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
from mcp_optimizer.largejson.compact_json import Written, compact, compact_bytes
from mcp_optimizer.largejson.raw import RawJson
from mcp_optimizer.runtime.patterns import regex

if TYPE_CHECKING:
    from mcp_optimizer.access.audit.trail import AuditTrail

logger = logging.getLogger(__name__)


# Hashes that show only whether two calls had the same arguments or the same result. A plain hash of short arguments
# could be guessed, so written hashes are keyed with a key that stays in the database: the file alone reveals nothing.
# `recording` makes the plain hash; the trail keys it before it is written.

_SORTED_UP_TO = 64 * 1024
"""Bytes of arguments beyond which keys are not sorted: sorting would take longer than everything else."""

_HASHED = 64 * 1024
"""Bytes or characters of a result that are hashed; the rest counts only by its length."""

# Created once, because creating an encoder takes as long as encoding small arguments.
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)

_PLAIN = frozenset((str, int, bool, type(None)))
_FEW = 32
"""Maximum arguments whose types are checked one by one."""

_PLACES = ("content", "contents", "messages")
_FURTHER = frozenset((*_PLACES[1:], "completion"))
_TEXT = (str, RawJson)
_TEXT_BLOCK = {"type", "text"}
_MOST_TEXTS = 10_000
_SIZE = 16
_HASHES = tuple(map(AuditEntry._fields.index, ("arguments_hash", "result_hash")))


class HashKey:
    """A key, and a mark that distinguishes its hashes from those of another key."""

    def __init__(self, secret: bytes) -> None:
        self._mark = hashlib.blake2b(b"mark", key=secret, digest_size=4).hexdigest()
        # Copied for each hash, which takes half the time of creating one.
        self._begun = hashlib.blake2b(key=secret, digest_size=_SIZE)

    @classmethod
    def made_up(cls) -> HashKey:
        """A random key, for a process without a database: its hashes can be compared only with each other."""
        return cls(secrets.token_bytes(32))

    def keyed(self, entry: AuditEntry) -> AuditEntry:
        """The entry with its hashes keyed, as it may be written."""
        values: list[Any] = list(entry)
        for at in _HASHES:
            if plain := values[at]:
                keyed = self._begun.copy()
                keyed.update(plain.encode())
                values[at] = f"{self._mark}:{keyed.hexdigest()}"
        return AuditEntry(*values)


class ArgumentsDigest(NamedTuple):
    """Arguments as JSON, and their plain hash."""

    json: bytes = b""
    hash: str = ""

    @property
    def text(self) -> str:
        """The beginning of the JSON, as text."""
        return self.json.decode("utf-8", "surrogatepass")[:LONGEST_ARGUMENTS]


def digest_of_arguments(arguments: Any) -> ArgumentsDigest:
    """A digest that does not depend on the order of keys. Values that are not JSON get no hash."""
    if arguments is None:
        return ArgumentsDigest()
    try:
        written = _written(arguments)
    except (TypeError, ValueError, RecursionError):
        return ArgumentsDigest()
    return ArgumentsDigest(written, hashlib.blake2b(written).hexdigest())


def _written(arguments: Any) -> bytes:
    if isinstance(arguments, Written):
        return arguments.json
    is_few = isinstance(arguments, dict) and len(arguments) <= _FEW
    if is_few and _PLAIN.issuperset(map(type, arguments.values())):
        # The usual case, a few plain values by name: every JSON encoder writes these alike.
        ordered = dict(sorted(arguments.items())) if len(arguments) > 1 else arguments
        written = compact_bytes(ordered)
        if ordered is arguments or len(written) <= _SORTED_UP_TO:
            return written
    text = compact(arguments)
    if len(text) <= _SORTED_UP_TO:
        text = _SORTED.encode(arguments)
    return text.encode("utf-8", "surrogatepass")


def digest_of_result(result: Mapping[str, Any]) -> str:
    """A plain hash of the texts in a result; long texts count by their beginning and length."""
    if (only := _only_text(result)) is not None:
        said = b"%b\0%d" % (only[:_HASHED].encode("utf-8", "replace"), len(only))
    else:
        said = _said(result)
    # Not SHA-256: creating its object takes longer than hashing an ordinary result.
    return hashlib.blake2b(said).hexdigest()


def _said(result: Mapping[str, Any]) -> bytes:
    """The texts, each followed by a NUL, and their total length."""
    pieces: list[bytes] = []
    room, size = _HASHED, 0
    for text in islice(_texts(result), _MOST_TEXTS):
        if isinstance(text, RawJson):
            beginning, length = bytes(text.json[:room]), len(text.json)
        else:
            beginning, length = text[:room].encode("utf-8", "replace"), len(text)
        pieces += (beginning, b"\0")
        room = max(0, room - len(beginning))
        size += length
    pieces.append(b"%d" % size)
    return b"".join(pieces)


def _only_text(result: Mapping[str, Any]) -> str | None:
    """The text of a result that consists of one text block, as most do; otherwise None."""
    content = result.get("content")
    if isinstance(content, list) and len(content) == 1 and _FURTHER.isdisjoint(result):
        block = content[0]
        if isinstance(block, dict) and block.keys() == _TEXT_BLOCK and isinstance(text := block["text"], str):
            return text
    return None


def _texts(result: Mapping[str, Any]) -> Iterator[str | RawJson]:
    """The texts in the result of a tool, a prompt, a resource or a completion."""
    for key in _PLACES:
        blocks = result.get(key)
        for block in blocks if isinstance(blocks, list) else ():
            inner = block.get("content", block) if isinstance(block, dict) else None
            for part in inner if isinstance(inner, list) else (inner,):
                if isinstance(part, dict):
                    yield from _texts_of_block(part)
    completion = result.get("completion")
    values = completion.get("values") if isinstance(completion, dict) else None
    if isinstance(values, list):
        yield from (value for value in values if isinstance(value, str))


def _texts_of_block(block: Mapping[str, Any]) -> list[str | RawJson]:
    resource = block.get("resource")
    places = (block, resource) if isinstance(resource, dict) else (block,)
    return [text for place in places for key in ("text", "blob") if isinstance(text := place.get(key), _TEXT)]


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
