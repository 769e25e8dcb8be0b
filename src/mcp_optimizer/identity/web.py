"""Sends requests to authorization servers: bounded, without redirects, never logged, and only to addresses that
`runtime/outgoing` permits. Knows no OAuth.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2

from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.runtime.outgoing import (
    Outgoing,
    OutOfBounds,
    Pinned,
    UnreadableBody,
    body_within,
    is_proxied_address,
    is_this_machine,
)
from mcp_optimizer.runtime.patterns import regex

_SECONDS = 15.0
_MOST_BYTES = 256 * 1024
_LONGEST_ADDRESS = 4_000
_ERROR = regex(r"[a-z]{1,20}(_[a-z]{1,20}){0,4}")


class Unanswered(OptimizerError):
    """An authorization server cannot be reached, or has a temporary failure. Trying again later may help."""


class LoginFailed(OptimizerError):
    """A login cannot succeed with the current configuration or answers; the message says why and what to do."""


@dataclass(frozen=True)
class Reply:
    """The status and JSON object of a response; the object is empty if the body is anything else."""

    status: int
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)
    challenges: str = ""
    """What the server demands, as in its `WWW-Authenticate` headers."""


class _Clients:
    """HTTP clients, created when first needed: one that connects directly, and one that uses a proxy."""

    def __init__(self, transport: httpx2.AsyncBaseTransport | None) -> None:
        self._transport = transport
        self._direct: httpx2.AsyncClient | None = None
        self._proxied: httpx2.AsyncClient | None = None

    def of(self, *, is_proxied: bool) -> httpx2.AsyncClient:
        if is_proxied:
            self._proxied = self._proxied or httpx2.AsyncClient(timeout=_SECONDS, follow_redirects=False)
            return self._proxied
        transport = self._transport or Pinned()
        self._direct = self._direct or httpx2.AsyncClient(transport=transport, timeout=_SECONDS, follow_redirects=False)
        return self._direct

    async def close(self) -> None:
        for client in (self._direct, self._proxied):
            if client is not None:
                await client.aclose()
        self._direct = self._proxied = None


class Web:
    """One HTTP client for all authorization servers."""

    def __init__(
        self,
        transport: httpx2.AsyncBaseTransport | None = None,
        outgoing: Outgoing | None = None,
        clients: _Clients | None = None,
        named: tuple[str, ...] = (),
    ) -> None:
        """`named`: the server that names the requested addresses, and further addresses that its entry names."""
        self._transport = transport
        self._clients = clients or _Clients(transport)
        self._outgoing = outgoing or Outgoing()
        self._named = named

    def named_by(self, url: str, *configured: str) -> Web:
        """The same client, for addresses named by the server at `url` or by its entry."""
        return Web(self._transport, self._outgoing, self._clients, (url, *filter(None, configured)))

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        return await self._send("GET", url, headers=dict(headers or {}))

    async def post_form(self, url: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Reply:
        return await self._send("POST", url, data=dict(form), headers=dict(headers or {}))

    async def post_json(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Reply:
        return await self._send("POST", url, json=dict(body), headers=dict(headers or {}))

    async def close(self) -> None:
        await self._clients.close()

    async def _send(self, method: str, url: str, **given: Any) -> Reply:
        where = checked(url)
        try:
            is_proxied = self._transport is None and is_proxied_address(httpx2.URL(url))
        except httpx2.InvalidURL:
            raise LoginFailed("an address of its authorization server cannot be used") from None
        client = self._clients.of(is_proxied=is_proxied)
        given["headers"] = {"accept": "application/json", "accept-encoding": "gzip", **given["headers"]}
        try:
            async with asyncio.timeout(_SECONDS):
                if self._transport is None and not is_proxied:
                    whose = self._named[0] if self._named else ""
                    given["extensions"] = {"place": await self._outgoing.place(url, whose, self._named)}
                async with client.stream(method, url, **given) as response:
                    # An event stream may never end.
                    text = b"" if _is_stream(response) else await body_within(response, _MOST_BYTES)
                # One client serves all logins, and no authorization server needs cookies for these requests.
                client.cookies.clear()
                demanded = response.headers.get("www-authenticate", "")
                return Reply(response.status_code, _object(text), demanded)
        except OutOfBounds as refused:
            raise LoginFailed(str(refused)) from None
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, TimeoutError, OSError, ValueError) as error:
            raise Unanswered(f"{where} does not answer ({type(error).__name__})") from None
        except UnreadableBody:
            raise Unanswered(f"{where} sends more than {_MOST_BYTES // 1024} KB") from None


def _is_stream(response: httpx2.Response) -> bool:
    return str(response.headers.get("content-type", "")).lower().startswith("text/event-stream")


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def error_word(code: object, otherwise: str) -> str:
    """An error code that may be shown: one in the form of the standards. Any other text could quote what we sent."""
    return code if isinstance(code, str) and _ERROR.fullmatch(code) else otherwise


def checked(url: str, *, allows_this_machine: bool = True) -> str:
    """The host of an address that tokens or codes may be sent to: over HTTPS, or on this machine.

    `allows_this_machine` is False for addresses named by a remote server, which must not reach programs here.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if len(url) > _LONGEST_ADDRESS or not host or parts.username or parts.password or not is_plain:
        raise LoginFailed("an address of its authorization server cannot be used")
    is_here = is_this_machine(host)
    if is_here and not allows_this_machine:
        raise LoginFailed(f"it is elsewhere and names an address on this machine ({host})")
    if parts.scheme == "https" or (parts.scheme == "http" and is_here):
        return host
    raise LoginFailed(f"{host!r} must use https: tokens are sent there")


def sendable(text: object, longest: int = 4_000) -> bool:
    """Whether a text can be sent as a token or an id: visible ASCII."""
    return isinstance(text, str) and 0 < len(text) <= longest and text.isascii() and text.isprintable()
