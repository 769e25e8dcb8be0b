"""Requests to registries, and downloads of bundles: bounded in size, time and redirects, over HTTPS. Knows no formats.

`runtime.outgoing` decides where requests may go: no outside server can redirect us to this machine or its network.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from mcp_optimizer.errors import ConfigurationError, OptimizerError, quoted
from mcp_optimizer.runtime.outgoing import (
    Distance,
    Outgoing,
    OutOfBounds,
    Pinned,
    UnreadableBody,
    body_within,
    is_proxied_address,
    is_this_machine,
    written_distance,
)

_SECONDS = 20.0
_DOWNLOAD_SECONDS = 300.0
_MOST_JSON = 4 * 1024 * 1024
_MOST_REDIRECTS = 5
_LONGEST_ADDRESS = 4_000
_FAILURES = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, TimeoutError, OSError, ValueError)


class SourceUnanswered(OptimizerError):
    """A registry or a download does not respond, or not as it should. Trying again later may help."""


@asynccontextmanager
async def _asked(
    url: str, headers: dict[str, str], outgoing: Outgoing, named_by: str = ""
) -> AsyncIterator[httpx2.Response]:
    """The response from an address; raises OutOfBounds if its source may not name it."""
    where: dict[str, str] = {}
    if is_proxied := is_proxied_address(httpx2.URL(url)):
        outgoing.check_written(url, named_by)
    else:
        where["place"] = await outgoing.place(url, named_by)
    transport = None if is_proxied else Pinned()
    async with (
        httpx2.AsyncClient(transport=transport, timeout=_SECONDS, follow_redirects=False) as client,
        client.stream("GET", url, headers=headers, extensions=where) as response,
    ):
        yield response


async def fetched_json(url: str, outgoing: Outgoing | None = None) -> tuple[int, Any]:
    """The status and the JSON value of a response; the value is None if it is not JSON."""
    where = checked_address(url)
    headers = {"accept": "application/json", "accept-encoding": "gzip"}
    try:
        async with asyncio.timeout(_SECONDS), _asked(url, headers, outgoing or Outgoing()) as response:
            text = await body_within(response, _MOST_JSON)
    except OutOfBounds as refused:
        raise ConfigurationError(f"{where} is not asked: {refused}.") from None
    except _FAILURES as error:
        raise SourceUnanswered(f"{where} does not answer ({type(error).__name__}).") from None
    except UnreadableBody:
        raise SourceUnanswered(f"{where} sends more than {_MOST_JSON:,} bytes, or unreadable data.") from None
    try:
        return response.status_code, await asyncio.to_thread(json.loads, text)
    except (ValueError, RecursionError):
        return response.status_code, None


async def downloaded(url: str, path: Path, most: int, named_by: str = "", outgoing: Outgoing | None = None) -> str:
    """Writes a file of at most `most` bytes; returns its SHA-256. Follows redirects, never to a nearer address.

    `named_by`: the address of the registry that named it; empty if the user did.
    """
    where, outgoing = checked_address(url), outgoing or Outgoing()
    try:
        async with asyncio.timeout(_DOWNLOAD_SECONDS):
            for _ in range(_MOST_REDIRECTS + 1):
                async with _asked(url, {"accept-encoding": "identity"}, outgoing, named_by) as response:
                    if not response.is_redirect:
                        return await _written(response, path, most, where)
                    named_by, url = url, urljoin(url, response.headers.get("location", ""))
                where = checked_address(url)
    except OutOfBounds as refused:
        who = urlsplit(named_by).hostname or where
        raise ConfigurationError(f"The download is not made. {who} names where it is, but {refused}.") from None
    except _FAILURES as error:
        raise SourceUnanswered(f"{where} does not answer ({type(error).__name__}).") from None
    raise SourceUnanswered(f"{where} sends the download on more than {_MOST_REDIRECTS} times.")


async def _written(response: httpx2.Response, path: Path, most: int, where: str) -> str:
    if response.status_code != httpx2.codes.OK:
        raise SourceUnanswered(f"{where} answers the download with HTTP status {response.status_code}.")
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > most:
                raise SourceUnanswered(f"The download from {where} is larger than {most:,} bytes.")
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def checked_address(url: str) -> str:
    """The host of an address that may be requested: HTTPS, or this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if len(url) > _LONGEST_ADDRESS or not host or not is_plain:
        raise ConfigurationError(f"{quoted(url)} is not an address that can be used.")
    if parts.username or parts.password:
        raise ConfigurationError(f"The address of {host} contains a user or a password, which is not supported.")
    if parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(host)):
        return host
    raise ConfigurationError(f"The address of {host} must use https.")


def is_near(url: str) -> bool:
    """Whether an address, as written, is on this machine or its network."""
    return written_distance(urlsplit(url).hostname or "") < Distance.ELSEWHERE
