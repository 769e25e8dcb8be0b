"""The body of an HTTP response while it arrives. Knows no MCP, and no connection but as its source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

import httpx2


class BodySource(Protocol):
    """Where the body comes from."""

    def body(self) -> AsyncIterator[bytes]:
        """Its parts, as they arrive."""
        ...

    def whole_body(self) -> bytes | None:
        """All of it, if it came in one piece, which is given away."""
        ...


class ArrivingBody(httpx2.AsyncByteStream):
    """A response body as it arrives; closing it frees the connection for the next request."""

    def __init__(self, source: BodySource, free: Callable[[], None]) -> None:
        self._source = source
        self._free: Callable[[], None] | None = free

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._source.body()

    def arrived(self) -> bytes | None:
        """All of it, if it is here and nobody has begun to read it; then nothing is left to read."""
        return self._source.whole_body()

    async def aclose(self) -> None:
        if self._free is not None:
            self._free()
            self._free = None
