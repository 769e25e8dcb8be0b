"""How often somebody guessed the dashboard's token: after ten wrong ones in a minute, an address waits for a minute.

Asked by `reception`. A token is chosen by a person, so it may be guessed; keys, tickets and sign-ins are random, and
who has one is not delayed by what others guess.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

_MOST = 10
_SECONDS = 60.0
_MOST_ADDRESSES = 1_000


class WrongGuesses:
    """The last wrong guesses of each address; the oldest addresses make room for new ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: OrderedDict[str, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def note(self, address: str) -> None:
        """One more."""
        self._of.setdefault(address, deque(maxlen=_MOST)).append(self._clock())
        self._of.move_to_end(address)
        while len(self._of) > _MOST_ADDRESSES:
            self._of.popitem(last=False)

    def are_too_many(self, address: str) -> bool:
        """Whether another guess would be too many just now."""
        found = self._of.get(address)
        return found is not None and len(found) == _MOST and found[0] > self._clock() - _SECONDS
