"""Restricts requests to addresses that a server named: never to this gateway, and no nearer than that server itself.

A remote server has no business with this machine or its network, and a server in the network has none with this
machine. An address in the configuration is the user's own choice. Names are looked up once, and the connection goes to
the result, so that a name cannot change its meaning in between. Used by all code that fetches an address from outside;
knows no protocol above HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import zlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

if TYPE_CHECKING:
    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The current addresses of a name; raises OSError."""

_TRANSLATED = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_USUAL_PORTS = {"http": 80, "https": 443}
_GZIP = zlib.MAX_WBITS | 16


class Distance(IntEnum):
    """How far away an address is."""

    THIS_MACHINE = 0
    THIS_NETWORK = 1
    ELSEWHERE = 2


class OutOfBounds(Exception):
    """The address must not be contacted."""


class UnreadableBody(Exception):
    """The body of a response is too long, or compressed in a way that was not requested."""


async def resolved(host: str, port: int) -> Sequence[str]:
    """The addresses according to the system."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]).partition("%")[0] for *_, address in found]


class Outgoing:
    """Decides whether an address may be contacted, and to which one a name is resolved."""

    def __init__(self, resolve: Resolve = resolved) -> None:
        self._resolve = resolve
        self._own_ports: set[int] = set()

    def listening(self, port: int) -> None:
        """From now on this port is ours, at every address of this machine."""
        self._own_ports.add(port)

    async def place(self, url: str, named_by: str = "", configured: Collection[str] = ()) -> str:
        """The address to connect to; raises OutOfBounds, or OSError if the name is not known.

        `named_by`: the address of the server that named it; empty for the user. `configured`: the addresses in the
        server's entry.
        """
        host, port = _host_and_port(url)
        found = [_address(one) for one in await self._resolve(host, port)]
        if not found:
            raise OSError("the name has no address")
        if any(self._is_own(one, port) for one in found):
            raise OutOfBounds(f"{host}:{port} is an address of this gateway itself")
        if named_by and origin(url) not in {origin(one) for one in configured}:
            nearest = min(map(distance, found))
            if nearest < await self._distance(named_by):
                raise OutOfBounds(_names_nearer(nearest, host))
        return str(found[0])

    def check_written(self, url: str, named_by: str = "") -> None:
        """The same check for a name that a proxy resolves, as far as the text allows; raises OutOfBounds."""
        (host, port), (naming, _) = _host_and_port(url), _host_and_port(named_by)
        if is_this_machine(host) and port in self._own_ports:
            raise OutOfBounds(f"{host}:{port} is an address of this gateway itself")
        if named_by and (nearest := written_distance(host)) < written_distance(naming):
            raise OutOfBounds(_names_nearer(nearest, host))

    async def _distance(self, url: str) -> Distance:
        host, port = _host_and_port(url)
        try:
            return min((distance(_address(one)) for one in await self._resolve(host, port)), default=Distance.ELSEWHERE)
        except OSError:
            return Distance.ELSEWHERE

    def _is_own(self, address: Address, port: int) -> bool:
        if port not in self._own_ports:
            return False
        return distance(address) is Distance.THIS_MACHINE or _is_of_this_machine(address)


class Pinned(httpx2.AsyncBaseTransport):
    """Connects to the resolved address, with the name in the certificate check and in the Host header."""

    def __init__(self, inner: httpx2.AsyncBaseTransport | None = None) -> None:
        self._inner = inner or httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if place := request.extensions.get("place"):
            request = httpx2.Request(
                request.method,
                request.url.copy_with(host=place),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": request.url.host},
            )
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def is_proxied_address(url: httpx2.URL) -> bool:
    """Whether the environment sets a proxy for a URL."""
    return not getproxies().keys().isdisjoint({url.scheme, "all"}) and not proxy_bypass(url.host)


async def body_within(response: httpx2.Response, most: int) -> bytes:
    """The complete body, of at most `most` bytes; raises UnreadableBody.

    Decompresses the body itself, because httpx would unpack a kilobyte into a gigabyte before anything could count it.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise UnreadableBody("its response has an encoding that was not requested")
    unpacking = zlib.decompressobj(_GZIP) if encoding.endswith("gzip") else None
    body = bytearray()
    try:
        async for chunk in response.aiter_raw():
            body += chunk if unpacking is None else unpacking.decompress(chunk, most + 1 - len(body))
            if len(body) > most:
                raise UnreadableBody(f"its response is longer than {most:,} bytes")
            if unpacking is not None and unpacking.eof:
                # Data after the end is not part of the body and would only be collected.
                break
    except zlib.error:
        raise UnreadableBody("its response is not valid gzip") from None
    return bytes(body)


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port."""
    host, port = _host_and_port(url)
    return urlsplit(url).scheme.lower(), host.lower(), port


def distance(address: Address) -> Distance:
    """The distance of an address. Anything neither on this machine nor in a public network counts as this network,
    including reserved addresses.
    """
    if isinstance(address, ipaddress.IPv6Address):
        # A translator on the way decides what happens to an embedded address.
        address = _ipv4_within(address) or address
    if address.is_loopback or address.is_unspecified:
        return Distance.THIS_MACHINE
    return Distance.ELSEWHERE if address.is_global and not address.is_multicast else Distance.THIS_NETWORK


def written_distance(host: str) -> Distance:
    """The distance of a host as written. A name reveals nothing and counts as remote; its address is checked after the
    lookup.
    """
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return Distance.THIS_MACHINE
    with contextlib.suppress(ValueError):
        return distance(_address(name))
    with contextlib.suppress(OSError, ValueError):
        # As the system reads it: 127.1, 0x7f000001 and 0 are addresses too.
        return distance(ipaddress.IPv4Address(socket.inet_aton(name)))
    return Distance.ELSEWHERE


def is_this_machine(host: str) -> bool:
    return written_distance(host) is Distance.THIS_MACHINE


def _names_nearer(nearest: Distance, host: str) -> str:
    where = "this machine" if nearest is Distance.THIS_MACHINE else "this network"
    return f"it is elsewhere and names an address on {where} ({host})"


def _ipv4_within(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The address inside a mapped, 6to4, translated (NAT64) or compatible one; `::1` contains none."""
    if address.ipv4_mapped is not None or address.sixtofour is not None:
        return address.ipv4_mapped or address.sixtofour
    is_translated = any(address in network for network in _TRANSLATED)
    is_compatible = int(address) >> 32 == 0 and int(address) > 1
    return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF) if is_translated or is_compatible else None


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _USUAL_PORTS.get(parts.scheme.lower(), 0)


def _address(text: str) -> Address:
    return ipaddress.ip_address(text)


def _is_of_this_machine(address: Address) -> bool:
    """Whether an interface has the address: a socket can only be bound to such an address."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as tried:
        tried.bind((str(address), 0))
        return True
    return False
