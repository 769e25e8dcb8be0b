"""Limits how many calls to one server are in progress and waiting; each of several callers gets at most half of them.

Without a limit, a slow server would fill the gateway's memory with calls whose callers have given up. Without shares, a
caller that never stops calling would take every place. Used by `server_calls` and the pool.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from mcp_optimizer.errors import ServerBusy

_SMOOTHING = 0.1

_KEPT = 16
"""Callers that are kept without a call, because most will call again."""


class CallPlace(NamedTuple):
    """A place at a server, taken by a call."""

    caller: str
    began: float


@dataclass(slots=True)
class _Share:
    """One caller's calls to a server, and its limits."""

    most_under_way: int
    most_waiting: int
    under_way: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def enter(self) -> None:
        self.under_way += 1

    def leave(self) -> None:
        self.under_way -= 1


class Admission:
    """Admits calls to one server. A call holds a place between `begin` and `end`."""

    def __init__(self, server: str, most_under_way: int, most_waiting: int) -> None:
        self._server = server
        self._most_under_way = most_under_way
        self._most_waiting = most_waiting
        self._shares: OrderedDict[str, _Share] = OrderedDict()
        """The callers that hold or wait for a place, in the order in which they get the next one, and some that did."""
        self._under_way = 0
        self._waiting = 0
        self._usual_seconds = 0.1
        self._emptied = asyncio.Event()

    @property
    def under_way(self) -> int:
        return self._under_way

    @property
    def waiting(self) -> int:
        return self._waiting

    async def emptied(self) -> None:
        """Wait until no call is in progress or waiting."""
        while self._under_way or self._waiting:
            self._emptied.clear()
            await self._emptied.wait()

    async def begin(self, caller: str = "", *, is_one_of_many: bool = False) -> CallPlace:
        """Begin a call as soon as its caller can have a place. Raises ServerBusy if too many already wait.

        `is_one_of_many`: there may be other callers, so this one may take only half of the places.
        """
        share = self._shares.get(caller)
        if share is None:
            part = 2 if is_one_of_many else 1
            share = _Share(max(1, self._most_under_way // part), max(1, self._most_waiting // part))
            self._shares[caller] = share
        if self._has_place(share) and not share.waiting:
            self._enter(share)
        else:
            await self._turn(caller, share)
        return CallPlace(caller, time.monotonic())

    def end(self, place: CallPlace) -> None:
        """End a call, and free its place."""
        self._usual_seconds += _SMOOTHING * (time.monotonic() - place.began - self._usual_seconds)
        self._leave(place.caller)

    def _has_place(self, share: _Share) -> bool:
        return self._under_way < self._most_under_way and share.under_way < share.most_under_way

    def _enter(self, share: _Share) -> None:
        share.enter()
        self._under_way += 1

    async def _turn(self, caller: str, share: _Share) -> None:
        if self._waiting >= self._most_waiting or len(share.waiting) >= share.most_waiting:
            turns = 1 + self._waiting / self._most_under_way
            seconds = max(1.0, self._usual_seconds * turns)
            waiting = self._waiting
            self._forget_unused(caller)
            raise ServerBusy(self._server, self._under_way, waiting, seconds)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        share.waiting.append(place)
        self._waiting += 1
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                # It was cancelled just as it got the place.
                self._leave(caller)
            elif place in share.waiting:
                share.waiting.remove(place)
                self._waiting -= 1
                self._forget_unused(caller)
            raise

    def _leave(self, caller: str) -> None:
        """Free a place, and give free places to waiting callers in turn."""
        self._shares[caller].leave()
        self._under_way -= 1
        if len(self._shares) > _KEPT:
            self._forget_unused(caller)
        for waiting in list(self._shares) if self._waiting else ():
            if self._under_way >= self._most_under_way:
                break
            self._pass_on(waiting)
        if not self._under_way and not self._waiting:
            self._emptied.set()

    def _pass_on(self, caller: str) -> None:
        """Give one free place to a caller, which then comes after all others."""
        share = self._shares[caller]
        while share.waiting and self._has_place(share):
            place = share.waiting.popleft()
            self._waiting -= 1
            if not place.done():
                self._enter(share)
                place.set_result(None)
                self._shares.move_to_end(caller)
                return

    def _forget_unused(self, caller: str) -> None:
        if len(self._shares) <= _KEPT:
            return
        share = self._shares.get(caller)
        if share is not None and not share.under_way and not share.waiting:
            del self._shares[caller]
