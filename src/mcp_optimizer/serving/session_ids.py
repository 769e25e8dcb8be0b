"""Signed session ids, with the client's introduction, from which any gateway of an installation can open a session that
has not ended.

An id is bound to its caller: the principal's id is signed with it, so it is invalid for any other caller. Called by the
sessions over HTTP; knows no transport.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import secrets
import time
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.runtime.tasks import BackgroundTasks

if TYPE_CHECKING:
    from mcp_optimizer.db.gateways import GatewayRows

logger = logging.getLogger(__name__)


SESSION_DAYS: Final = 90
"""Days after its beginning during which another gateway can open a session again."""

LONGEST_ID: Final = 3_000
"""Maximum characters of an id: every request carries it, and load balancers limit the size of headers."""

_PURPOSE = "session"
_MARK = "s1"
_DAY = 86_400
_LEFT_OUT_FIRST = ("experimental", "extensions")
"""Capabilities that can have any size; they are dropped if an id gets too long."""
_LARGEST_HELLO = 200_000
_SHOWN_VERSION = 64


@dataclass(frozen=True)
class Introduction:
    """A client's introduction in `initialize`."""

    revision: str
    name: str
    version: str
    capabilities: Mapping[str, Any]

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Introduction:
        """Builds it from the parameters of `initialize`, whatever they are: the SDK checks them."""
        info, declared = params.get("clientInfo"), params.get("capabilities")
        known = info if isinstance(info, Mapping) else {}
        asked = params.get("protocolVersion")
        revision = asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        return cls(
            str(revision),
            str(known.get("name", "")),
            str(known.get("version", ""))[:_SHOWN_VERSION],
            declared if isinstance(declared, Mapping) else {},
        )

    @property
    def params(self) -> dict[str, Any]:
        """Parameters for repeating the same `initialize`."""
        info = {"name": self.name, "version": self.version}
        return {"protocolVersion": self.revision, "clientInfo": info, "capabilities": dict(self.capabilities)}


class SessionIds:
    """Makes and reads session ids."""

    def __init__(self, signatures: Signatures, clock: Callable[[], float] = time.time) -> None:
        self._signatures = signatures
        self._clock = clock

    def is_unreadable_now(self, session_id: str) -> bool:
        """Whether an unrecognized id may be another gateway's: that is unknown until the signing key is loaded."""
        return self._signatures.is_waiting and session_id.startswith(f"{_MARK}.") and len(session_id) <= LONGEST_ID

    async def new(self, introduction: Introduction, principal: str) -> str:
        """An id for the session that this caller begins; empty if its introduction is too long for one."""
        for said in _shorter_and_shorter(introduction):
            beginning = f"{_MARK}.{_packed(said, round(self._clock()))}"
            made = f"{beginning}.{await self._signatures.sign(_PURPOSE, _signed(beginning, principal))}"
            if len(made) <= LONGEST_ID:
                return made
        return ""

    async def read(self, session_id: str, principal: str) -> Introduction | None:
        """The introduction that began this session; None if the id is not ours, not the caller's, or expired."""
        beginning, _, signature = session_id.rpartition(".")
        if len(session_id) > LONGEST_ID or not beginning.startswith(f"{_MARK}."):
            return None
        if not await self._signatures.is_ours(_PURPOSE, _signed(beginning, principal), signature):
            return None
        introduction, began = _unpacked(beginning.removeprefix(f"{_MARK}."))
        age = self._clock() - began
        return introduction if age < SESSION_DAYS * _DAY else None


def _signed(beginning: str, principal: str) -> str:
    return f"{principal}\0{beginning}"


def _shorter_and_shorter(introduction: Introduction) -> list[Introduction]:
    kept = {name: value for name, value in introduction.capabilities.items() if name not in _LEFT_OUT_FIRST}
    named: dict[str, Any] = {name: {} for name in kept if name in ("roots", "sampling", "elicitation")}
    return [introduction] + [
        Introduction(introduction.revision, introduction.name, introduction.version, capabilities)
        for capabilities in (kept, named)
    ]


def _packed(said: Introduction, began: int) -> str:
    nonce = secrets.token_urlsafe(9)
    whole = [nonce, began, said.revision, said.name, said.version, dict(said.capabilities)]
    packed = zlib.compress(json.dumps(whole, separators=(",", ":")).encode(), 9)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _unpacked(text: str) -> tuple[Introduction, int]:
    """Unpacks text that a gateway signed, so it is known to be readable."""
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        plain = zlib.decompressobj().decompress(packed, _LARGEST_HELLO)
    except (binascii.Error, zlib.error) as error:
        raise AssertionError("signed, and not readable") from error
    _, began, revision, name, version, capabilities = json.loads(plain)
    return Introduction(revision, name, version, capabilities), began


# The sessions that their clients ended: no gateway opens them again, although their signed ids are still valid. Kept
# in the database for as long as an id is valid; the latest are also in memory. While the database is unavailable,
# only those in memory are known, and no request waits for it longer than a second.

_PATIENCE = 1.0
_MOST = 10_000
_MOST_UNWRITTEN = 100
_DAY_MS = 86_400_000


def _of_nobody(_is_ended: Callable[[str], bool]) -> None:
    """For when no sessions are open."""


async def _nowhere() -> GatewayRows | None:
    return None


class EndedSessions:
    """The ended sessions of all gateways. `stored` returns the database once open; `breaker` bounds the wait for it."""

    def __init__(
        self, stored: Callable[[], Awaitable[GatewayRows | None]] | None = None, breaker: Breaker | None = None
    ) -> None:
        self._stored = stored or _nowhere
        self._breaker = breaker or Breaker()
        self._latest: OrderedDict[str, None] = OrderedDict()
        self._tasks = BackgroundTasks(logger, "The end of a session could not be written")
        self._end: Callable[[Callable[[str], bool]], None] = _of_nobody
        self._open: Callable[[], list[str]] = list

    def over(self, sessions: Callable[[], list[str]], end: Callable[[Callable[[str], bool]], None]) -> None:
        """`sessions` returns the sessions that are open here; `end` ends those for which its predicate is true."""
        self._open, self._end = sessions, end

    def told(self, hashes: Sequence[str]) -> None:
        """Handle a report that other gateways ended these sessions; an empty list stands for unspecified ones."""
        if not hashes:
            self._tasks.spawn(self._look())
            return
        for name in hashes:
            self._remember(name)
        self._end(lambda session: _hash(session) in hashes)

    async def _look(self) -> None:
        try:
            stored, hashes = await self._stored(), [_hash(session) for session in self._open()]
            if stored is not None and (ended := await stored.ended_among(hashes)):
                self.told(sorted(ended))
        except CatalogError as error:
            logger.debug("Whether sessions were ended is not known: %s", error)

    def _remember(self, name: str) -> None:
        self._latest[name] = None
        if len(self._latest) > _MOST:
            self._latest.popitem(last=False)

    async def add(self, session: str) -> None:
        """Record that a client ends its session: before it gets its answer or, after a second, in the background."""
        name = _hash(session)
        self._remember(name)
        if len(self._tasks) < _MOST_UNWRITTEN:
            await asyncio.wait([self._tasks.spawn(self._write(name))], timeout=_PATIENCE)

    async def _write(self, name: str) -> None:
        now = time.time_ns() // 1_000_000
        try:
            if (stored := await self._stored()) is not None:
                await stored.end_session(name, now + SESSION_DAYS * _DAY_MS, now)
        except CatalogError as error:
            logger.warning("Other gateways may open a session again that its client ended: %s.", error)

    async def has(self, session: str) -> bool:
        name = _hash(session)
        if name in self._latest:
            return True

        async def ask() -> bool:
            stored = await self._stored()
            return stored is not None and await stored.is_ended(name)

        try:
            return await self._breaker.within(ask)
        except CatalogError:
            # A client that ended a session hardly waits for an answer in it; a client that uses one does.
            return False


def _hash(session: str) -> str:
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
