"""What history and audit call a caller's conversation and its client. One object serves both, so they agree."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.runtime.terminal_text import printable

_LONGEST_NAME = 80
_MOST_KNOWN = 10_000
_DAY = 86_400


class SessionLabels:
    """A hash for each conversation, which does not say whose it is, and the client's own name, made printable."""

    def __init__(self, shared: Callable[[], str] = str) -> None:
        """`shared` is known to all gateways that share their clients, so that a client has one conversation at all of
        them; empty where there is only this one, or it is not known yet.
        """
        self._shared = shared
        # On stdio every process is one conversation, and its caller is always "local".
        self._process = secrets.token_hex(8)
        # Keyed by the caller's names, never by the caller itself, which holds its client's complete connection.
        self._known: dict[tuple[str, str, str], tuple[str, str]] = {}

    def of(self, caller: Caller) -> tuple[str, str]:
        """The conversation and the client."""
        link = caller.link
        salt, conversation = self._process, caller.key if link is None else link.key
        if link is not None and (shared := self._shared()):
            # A modern client has only its name, and would be one conversation for ever.
            salt = f"{shared} {round(time.time()) // _DAY}" if link.is_modern else shared
        key = (salt, conversation, caller.client)
        known = self._known.get(key)
        if known is None:
            session = hashlib.sha256(f"{salt} {conversation}".encode("utf-8", "replace")).hexdigest()[:16]
            known = (session, printable(caller.client)[:_LONGEST_NAME])
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known
