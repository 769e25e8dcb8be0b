"""What each conversation was shown, so that it is not shown again. Bounded; forgets the oldest.

Only where a client says which conversation a call is part of: in another one of the same session, nobody would have
seen it. Whoever misses something asks for it by name.
"""

from __future__ import annotations

import time
from collections import OrderedDict

_MOST_CONVERSATIONS = 1_000
_MOST_SHOWN = 100
"""Things one conversation is remembered to have seen. A model that reads on loses what is further back."""

_SECONDS = 900.0
"""After this long, a model may have lost what it was shown."""


class Seen:
    """What one conversation was shown: tools and servers, by any key."""

    def __init__(self) -> None:
        self._at: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, key: object) -> bool:
        at = self._at.get(key) if isinstance(key, str) else None
        return at is not None and time.monotonic() - at < _SECONDS

    def add(self, key: str) -> None:
        self._at.pop(key, None)
        self._at[key] = time.monotonic()
        while len(self._at) > _MOST_SHOWN:
            self._at.popitem(last=False)


class SeenByCaller:
    """What each of the latest conversations was shown."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, Seen] = OrderedDict()

    def of(self, key: str) -> Seen:
        seen = self._seen.pop(key, None) or Seen()
        self._seen[key] = seen
        while len(self._seen) > _MOST_CONVERSATIONS:
            self._seen.popitem(last=False)
        return seen
