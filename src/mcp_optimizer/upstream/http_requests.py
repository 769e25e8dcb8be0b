"""HTTP requests as they are written on a connection. Pure; knows no MCP."""

from __future__ import annotations

from collections.abc import Iterable

import httpx2

Origin = tuple[str, str, int]
"""Scheme, host and port: what a connection leads to."""


def origin_of(url: httpx2.URL) -> Origin:
    return (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))


def written_line(method: str, url: httpx2.URL) -> bytes:
    """The first line of a request."""
    return b"%b %b HTTP/1.1\r\n" % (method.encode("ascii"), url.raw_path)


def written_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A line for each; after the last, an empty one must follow."""
    lines = []
    for name, value in headers:
        if b"\n" in value or b"\r" in value or b"\n" in name or b"\r" in name:
            raise httpx2.LocalProtocolError(f"the header {name!r} holds a line break")
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


def written_head(request: httpx2.Request) -> bytes:
    """All of a request but its body."""
    return written_line(request.method, request.url) + written_headers(request.headers.raw) + b"\r\n"
