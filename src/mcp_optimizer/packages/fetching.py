"""Requests to registries, and downloads of bundles: bounded in size, time and redirects, over HTTPS. Knows no formats.

A server elsewhere cannot send us on to what is written as an address of this machine or its network; names are not
looked up for that.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from mcp_optimizer.errors import ConfigurationError, OptimizerError, quoted
from mcp_optimizer.upstream.endings import ExchangeLost, RpcError
from mcp_optimizer.upstream.http_bodies import whole_body

_SECONDS = 20.0
_DOWNLOAD_SECONDS = 300.0
_MOST_JSON = 4 * 1024 * 1024
_MOST_REDIRECTS = 5
_LONGEST_ADDRESS = 4_000
_FAILURES = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, TimeoutError, OSError, ValueError)


class SourceUnanswered(OptimizerError):
    """A registry or a download does not answer, or not as it should. Trying again later may help."""


async def fetched_json(url: str) -> tuple[int, Any]:
    """The status and the JSON value of a response; None if it is something else."""
    where = checked_address(url)
    headers = {"accept": "application/json", "accept-encoding": "gzip"}
    try:
        async with (
            asyncio.timeout(_SECONDS),
            httpx2.AsyncClient(timeout=_SECONDS, follow_redirects=False) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            text = await whole_body(response, _MOST_JSON)
    except _FAILURES as error:
        raise SourceUnanswered(f"{where} does not answer ({type(error).__name__}).") from None
    except (ExchangeLost, RpcError):
        raise SourceUnanswered(f"{where} sends more than {_MOST_JSON:,} bytes, or something unreadable.") from None
    try:
        return response.status_code, await asyncio.to_thread(json.loads, text)
    except (ValueError, RecursionError):
        return response.status_code, None


async def downloaded(url: str, path: Path, most: int) -> str:
    """Writes a file of at most `most` bytes; its SHA-256. Redirects are followed, never to this machine."""
    where = checked_address(url)
    is_here = is_private(url)
    try:
        async with (
            asyncio.timeout(_DOWNLOAD_SECONDS),
            httpx2.AsyncClient(timeout=_SECONDS, follow_redirects=False) as client,
        ):
            for _ in range(_MOST_REDIRECTS + 1):
                async with client.stream("GET", url, headers={"accept-encoding": "identity"}) as response:
                    if not response.is_redirect:
                        return await _written(response, path, most, where)
                    url = urljoin(url, response.headers.get("location", ""))
                where = checked_address(url)
                if is_private(url) and not is_here:
                    raise ConfigurationError(
                        f"The download is sent on to an address on this machine or network: {where}."
                    )
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
    """The host of an address that may be asked: HTTPS, or this machine."""
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


def is_this_machine(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost") or _is_address(host, {"is_loopback"})


def is_private(url: str) -> bool:
    """Whether an address is, as it is written, one of this machine or of its network."""
    host = urlsplit(url).hostname or ""
    return is_this_machine(host) or _is_address(host, {"is_private", "is_link_local", "is_unspecified"})


def _is_address(host: str, kinds: set[str]) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return any(getattr(mapped, kind) for kind in kinds)
