"""Which request a server's message belongs to, where the server does not say.

On stdio nothing relates a message to a request. It goes to the client whose calls are the only ones in progress, but
not shortly after the calls of another client: a server may still be speaking of those. Used by the peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.upstream.exchange import Exchange

_STILL_SPEAKING = 30.0
"""Seconds after the end of a client's calls in which a message may be about them."""

_MOST_REMEMBERED = 1_000


class Attribution:
    """Remembers whose calls ended lately, on a session that several clients share."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}

    def ended(self, link: ClientLink) -> None:
        """A request for this client is over."""
        key = link.key
        self._ended.pop(key, None)
        self._ended[key] = asyncio.get_running_loop().time()
        if len(self._ended) > _MOST_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def whose(self, exchanges: Mapping[int, Exchange], related: int | None, *, is_shared: bool) -> Exchange | None:
        """The request that a message belongs to: known from the transport, or obvious because all are one client's."""
        if related is not None and (exchange := exchanges.get(related)) is not None and exchange.link is not None:
            return exchange
        with_client = [exchange for exchange in exchanges.values() if exchange.link is not None]
        keys = {exchange.link.key for exchange in with_client if exchange.link is not None}
        if len(keys) != 1 or (is_shared and self._may_be_of_another(next(iter(keys)))):
            return None
        return with_client[-1]

    def _may_be_of_another(self, key: str) -> bool:
        since = asyncio.get_running_loop().time() - _STILL_SPEAKING
        return any(other != key and at > since for other, at in self._ended.items())
