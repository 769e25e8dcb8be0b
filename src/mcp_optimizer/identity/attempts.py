"""The logins that people have begun and not finished. Used by `logins`.

Each is known where it began. Where several gateways share a database, it is kept there too, encrypted, because a
balancer sends the browser that comes back to any of them, and the gateway where it began may have ended. Each is
finished once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL, Principal
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.identity.oauth_client import Attempt, ClientId, NotAwaited, Provider
from mcp_optimizer.identity.store import SecretRows

logger = logging.getLogger(__name__)

_KIND = "attempt"
_MOST = 100
_SECONDS = 900.0
"""Seconds that a person may take to log in."""

Failed = Callable[[OptimizerError], None]


@dataclass(frozen=True)
class Awaited:
    """An attempt to log in that a person may still finish."""

    server: str
    place: str
    """The server's name and address, as the rows of its logins have them."""
    attempt: Attempt
    failed: Failed
    """Called if the login cannot be finished."""
    principal: Principal
    since: float
    """In wall-clock seconds, because another gateway may finish it."""
    is_stored: bool = False

    @property
    def is_over(self) -> bool:
        return time.time() - self.since > _SECONDS

    def to_json(self) -> bytes:
        whose = {"id": self.principal.id, "name": self.principal.name}
        said = {"server": self.server, "place": self.place, "whose": whose, "since": self.since}
        return json.dumps({**said, "attempt": asdict(self.attempt)}).encode()


class Attempts:
    """The attempts of all people."""

    def __init__(self, shared: SecretRows | None) -> None:
        """`shared`: where other gateways find them; None if there are none."""
        self._shared = shared
        self._known: dict[str, Awaited] = {}

    async def add(self, awaited: Awaited) -> None:
        state = awaited.attempt.state
        if self._shared is not None:
            awaited = replace(awaited, is_stored=await _stored(self._shared, awaited))
        waiting = {known: one for known, one in self._known.items() if not one.is_over}
        self._known = dict(list(waiting.items())[-_MOST + 1 :])
        self._known[state] = awaited

    async def taken(self, state: str) -> Awaited:
        """The attempt with this state, which nothing else gets from now on: a code or state is valid only once."""
        mine = self._known.pop(state, None)
        found = mine if mine is not None or self._shared is None else await _read(self._shared, state)
        if found is None or found.is_over:
            raise _not_awaited()
        if found.is_stored and self._shared is not None:
            await _use(self._shared, state, is_needed=mine is None)
        return found

    def forget(self, server: str) -> None:
        """The name means another server from now on."""
        self._known = {state: one for state, one in self._known.items() if one.server != server}


async def _stored(rows: SecretRows, awaited: Awaited) -> bool:
    try:
        await rows.drop_old(_KIND, int((time.time() - _SECONDS) * 1_000))
        await rows.write(_KIND, _name(awaited.attempt.state), awaited.to_json())
    except OptimizerError as failure:
        logger.warning("A login that begins here can only end here: %s", failure)
        return False
    return True


async def _read(rows: SecretRows, state: str) -> Awaited | None:
    body = await rows.read(_KIND, _name(state)) if state else None
    return None if body is None else _awaited_of(body)


async def _use(rows: SecretRows, state: str, *, is_needed: bool) -> None:
    """Raises NotAwaited if another gateway was first. `is_needed`: whether nothing is done without the database."""
    try:
        is_first = await rows.delete(_KIND, _name(state))
    except OptimizerError:
        if is_needed:
            raise
        return
    if not is_first:
        raise _not_awaited()


def _awaited_of(body: bytes) -> Awaited | None:
    """None if it cannot be read, for example one of a later version."""
    try:
        said = json.loads(body)
        attempt = said["attempt"]
        provider, client = Provider(**_tuples(attempt.pop("provider"))), ClientId(**attempt.pop("client"))
        whose = Principal(**said["whose"])
        return Awaited(
            said["server"],
            said["place"],
            Attempt(provider, client, **_tuples(attempt)),
            lambda _failure: None,
            LOCAL_PRINCIPAL if whose.id == LOCAL_PRINCIPAL.id else whose,
            float(said["since"]),
            is_stored=True,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _tuples(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}


def _name(state: str) -> str:
    # The state itself would let a reader of the database pass for the browser that comes back.
    return hashlib.sha256(state.encode()).hexdigest()


def _not_awaited() -> NotAwaited:
    return NotAwaited("no login waits for this answer: it was used, took too long, or is not from here")
