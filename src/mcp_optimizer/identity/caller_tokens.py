"""The tokens that callers sent, for exchanging them, and what they were exchanged for. Used by `exchange`.

Holds one token of each caller, which the door has verified, in memory only; forgets it when it ends, or when its caller
has been silent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.identity.oauth_client import Tokens
from mcp_optimizer.identity.store import SecretRows, beginning_of

logger = logging.getLogger(__name__)

# What a caller's token was exchanged for, as the gateways on one database share it: one exchanges for all of them.
# Encrypted there like logins, and for an hour at most. Whatever the database does, each gateway can exchange for
# itself.

_KIND = "exchange"
_CLAIM = 20.0
"""Seconds for which one gateway exchanges while others wait. An exchange that takes longer may be made twice."""
_LOOK = 0.1
_KEPT = 3_600.0
"""Seconds after which others exchange again, and the row is deleted."""
_SHARED_SWEEP = 600.0

_UNSAID = 300.0
"""Seconds for which a token is used if its life is not stated."""
_AHEAD = 0.2
"""Share of a token's life that remains when it is replaced."""
_LONGEST_AHEAD = 60.0


@dataclass(frozen=True)
class Given:
    """A token that a server takes for a caller."""

    tokens: Tokens
    at: float

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens.access}"}

    @property
    def ends(self) -> float:
        return self.at + _UNSAID if self.tokens.expires_at is None else self.tokens.expires_at

    def is_stale(self, now: float) -> bool:
        """Whether it is due to be replaced, which is some time before it ends."""
        return now >= self.ends - min(_LONGEST_AHEAD, _AHEAD * max(0.0, self.ends - self.at))

    def is_over(self, now: float) -> bool:
        return now >= self.ends


class Shared(Protocol):
    """Where a caller's tokens for one server are found and left."""

    async def found(self, wanted: Callable[[Given], bool]) -> Given | None:
        """A token that another gateway has got; None if this one has to exchange, and no other does meanwhile."""

    async def leave(self, given: Given) -> None: ...
    async def release(self) -> None:
        """Whether or not something was got, others need not wait for this gateway."""


class NotShared:
    """Without other gateways."""

    async def found(self, wanted: Callable[[Given], bool]) -> Given | None:
        del wanted
        return None

    async def leave(self, given: Given) -> None:
        del given

    async def release(self) -> None:
        """There is nothing to release."""


class Sweep:
    """Deletes, from time to time, what is not used any more."""

    def __init__(self, rows: SecretRows, clock: Callable[[], float] = time.monotonic) -> None:
        self._rows = rows
        self._clock = clock
        self._next = float("-inf")

    async def sweep(self) -> None:
        if self._clock() >= self._next:
            self._next = self._clock() + _SHARED_SWEEP
            await self._rows.drop_old(_KIND, int((time.time() - _KEPT) * 1_000))


class SharedTokens:
    """The row of one caller and one server."""

    def __init__(self, spec: ServerSpec, principal: Principal, rows: SecretRows, sweep: Sweep) -> None:
        self._rows = rows
        self._caller = principal.name
        self._sweep = sweep
        self._server = spec.name
        self._name = f"{beginning_of(principal.id)}{_ending_of(spec)}"
        self._claimed_until = 0

    async def found(self, wanted: Callable[[Given], bool]) -> Given | None:
        give_up = time.monotonic() + _CLAIM
        try:
            while (found := await self._read(wanted)) is None:
                if await self._claim():
                    return await self._read_and_release(wanted)
                if time.monotonic() > give_up:
                    return None
                await asyncio.sleep(_LOOK)
        except OptimizerError as failure:
            logger.info("Server %s: a token is exchanged without asking other gateways: %s", self._server, failure)
            return None
        return found

    async def leave(self, given: Given) -> None:
        body = json.dumps({"at": given.at, "caller": self._caller, **asdict(given.tokens), "refresh": ""}).encode()
        try:
            await self._rows.write(_KIND, self._name, body)
            await self._sweep.sweep()
        except OptimizerError as failure:
            logger.info("Server %s: an exchanged token cannot be left for other gateways: %s", self._server, failure)

    async def release(self) -> None:
        until, self._claimed_until = self._claimed_until, 0
        if not until:
            return
        try:
            await self._rows.release(_KIND, self._name, until)
        except OptimizerError:
            # It ends by itself.
            logger.debug("Server %s: the claim to exchange a token could not be ended", self._server)

    async def _read_and_release(self, wanted: Callable[[Given], bool]) -> Given | None:
        """What another gateway left between our last look and our claim."""
        if (found := await self._read(wanted)) is not None:
            await self.release()
        return found

    async def _read(self, wanted: Callable[[Given], bool]) -> Given | None:
        body = await self._rows.read(_KIND, self._name)
        found = None if body is None else _given_of(body)
        return found if found is not None and time.time() - found.at < _KEPT and wanted(found) else None

    async def _claim(self) -> bool:
        now = time.time_ns() // 1_000_000
        until = now + int(_CLAIM * 1_000)
        is_ours = await self._rows.claim(_KIND, self._name, until, now)
        self._claimed_until = until if is_ours else 0
        return is_ours


async def exchanged_by_callers(
    spec: ServerSpec, rows: SecretRows, fits: Callable[[str, str], bool]
) -> list[tuple[str, Given]]:
    """The callers for whom gateways that share this database have exchanged tokens for a server, of those whose account
    and name fit; and what they got. One gateway alone keeps this in memory.
    """
    found, ending = [], f"\n{_ending_of(spec)}"
    for name in await rows.names(_KIND):
        body = await rows.read(_KIND, name) if name.endswith(ending) else None
        given = None if body is None else _given_of(body)
        if body is None or given is None:
            continue
        account = name.removesuffix(ending)
        caller = str(json.loads(body).get("caller") or account)
        if fits(account, caller):
            found.append((caller, given))
    return found


def _ending_of(spec: ServerSpec) -> str:
    return f"{spec.name}\n{_digest_of(spec)}"


def _digest_of(spec: ServerSpec) -> str:
    """Of everything that decides what a token is for. Gateways with another entry under this name share nothing."""
    auth, exchange = spec.auth, spec.auth.exchange
    assert exchange is not None
    there = (auth.issuer, auth.client_id, auth.resource, auth.scopes)
    here = (exchange.kind, exchange.provider, exchange.token_url, exchange.client_id, exchange.subject)
    wanted = (exchange.audience, exchange.resource, exchange.scopes)
    return hashlib.sha256(repr((spec.url, there, here, wanted)).encode()).hexdigest()[:16]


def _given_of(body: bytes) -> Given | None:
    """None if it cannot be read, for example one of a later version."""
    try:
        said = json.loads(body)
        at, scopes = float(said.pop("at")), said.pop("scopes")
        said.pop("caller", None)
        return Given(Tokens(**said, scopes=None if scopes is None else tuple(scopes)), at)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


_MOST = 10_000
_SILENT = 300.0
"""Seconds after a caller's last request for which its token is held. An open stream of a caller counts as requests."""
_SWEEP = 60.0
_LEEWAY = 30.0
"""Seconds by which an issuer's clock may differ from ours."""


@dataclass(frozen=True)
class _Held:
    text: str = field(repr=False)
    ends: float
    """In wall-clock seconds."""
    seen_at: float
    is_refused: bool = False
    """Whether it was refused where it was to be exchanged, so that any other token is better."""


class CallerTokens:
    """One token of each caller."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._held)

    def note(self, principal: Principal, text: str) -> bool:
        """A caller has sent this valid token; returns whether it is held from now on, in place of another or none.

        Of two valid tokens the one that ends later is held: clients of one caller may take turns with theirs.
        """
        known, ends = self._current(principal.id), _end_of(principal)
        stays = known is not None and (known.text == text or (ends < known.ends and not known.is_refused))
        held = known if known is not None and stays else _Held(text, ends, 0.0)
        self._held[principal.id] = replace(held, seen_at=self._clock())
        self._held.move_to_end(principal.id)
        if stays:
            return False
        while len(self._held) > self._most:
            self._held.popitem(last=False)
        self._sweep_later()
        return True

    def of(self, caller: str) -> str:
        """The token of a caller, by the caller's id; empty if none is held."""
        known = self._current(caller)
        return "" if known is None else known.text

    def refused(self, caller: str, text: str) -> None:
        """This token could not be exchanged."""
        if (known := self._held.get(caller)) is not None and known.text == text:
            self._held[caller] = replace(known, is_refused=True)

    def sweep(self) -> None:
        """Forget what is not needed any more."""
        for caller in [caller for caller, one in self._held.items() if self._is_over(one)]:
            del self._held[caller]

    def close(self) -> None:
        self._held.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _current(self, caller: str) -> _Held | None:
        known = self._held.get(caller)
        if known is not None and self._is_over(known):
            del self._held[caller]
            return None
        return known

    def _is_over(self, one: _Held) -> bool:
        return time.time() >= one.ends + _LEEWAY or self._clock() - one.seen_at > _SILENT

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP, self._sweep_and_go_on)

    def _sweep_and_go_on(self) -> None:
        self._sweeping = None
        self.sweep()
        if self._held:
            self._sweep_later()


def _end_of(principal: Principal) -> float:
    ends = principal.claims.get("exp")
    return float(ends) if isinstance(ends, int | float) else float("inf")
