"""What history and audit call a caller's conversation and its client. One object serves both, so they agree."""

from __future__ import annotations

import hashlib
import secrets

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.runtime.terminal_text import printable

_LONGEST_NAME = 80
_MOST_KNOWN = 10_000


class SessionLabels:
    """A hash for each conversation, which does not say whose it is, and the client's own name, made printable."""

    def __init__(self) -> None:
        # On stdio every process is one conversation, and its caller is always "local".
        self._process = secrets.token_hex(8)
        # Keyed by the caller's names, never by the caller itself, which holds its client's complete connection.
        self._known: dict[tuple[str, str], tuple[str, str]] = {}

    def of(self, caller: Caller) -> tuple[str, str]:
        """The conversation and the client."""
        key = (caller.conversation, caller.client)
        known = self._known.get(key)
        if known is None:
            session = hashlib.sha256(f"{self._process} {caller.conversation}".encode("utf-8", "replace")).hexdigest()[
                :16
            ]
            known = (session, printable(caller.client)[:_LONGEST_NAME])
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known
