"""The tokens that callers sent, for exchanging them. In memory only, and only while they may be needed.

Used by `exchange`. Holds one token of each caller, which the door has verified; forgets it when it ends, or when its
caller has been silent.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mcp_optimizer.domain.principal import Principal

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
