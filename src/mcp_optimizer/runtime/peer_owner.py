"""Which user of this machine owns the other end of a loopback connection, by Linux's tables; elsewhere nobody knows.

Asked where a connection alone has to prove who somebody is, so every doubt is a None. Knows no protocol above TCP.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path

Address = tuple[str, int]

_TABLES = Path("/proc/net")
_ESTABLISHED = "01"
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")
_USUAL_OVERFLOW = 65_534


def owner_of_peer(peer: Address, own: Address, tables: Path = _TABLES) -> int | None:
    """The user id of whoever made the connection from `peer` to `own`; None if that is not certain."""
    try:
        wanted = {(_written(*there), _written(*here)) for there in _forms(peer) for here in _forms(own)}
    except ValueError:
        return None
    # Twice: a socket that is being closed can belong to root for a moment.
    found = {user for _ in range(2) for user in _owners(wanted, tables)}
    if len(found) != 1:
        return None
    [user] = found
    # Every user whom this container does not know looks the same.
    return user if user != _overflow() else None


def _owners(wanted: set[tuple[str, str]], tables: Path) -> Iterator[int | None]:
    is_found = False
    for name in ("tcp", "tcp6"):
        try:
            with (tables / name).open(encoding="ascii", errors="replace") as lines:
                for line in lines:
                    parts = line.split()
                    if len(parts) > 9 and (parts[1], parts[2]) in wanted:
                        is_found = True
                        yield _owner(parts)
        except OSError:
            # Without IPv6 there is one table less.
            continue
    if not is_found:
        yield None


def _owner(parts: list[str]) -> int | None:
    """Of a socket that a process still has open: the kernel writes root's number for any other."""
    state, user, inode = parts[3], parts[7], parts[9]
    return int(user) if state == _ESTABLISHED and inode != "0" and user.isdecimal() else None


def _forms(address: Address) -> list[Address]:
    """An address of IPv4 as it is, and as a socket of IPv6 has it."""
    host, port = address
    known = ipaddress.ip_address(host)
    if isinstance(known, ipaddress.IPv6Address):
        if known.ipv4_mapped is None:
            return [(str(known), port)]
        known = known.ipv4_mapped
    return [(str(known), port), (f"::ffff:{known}", port)]


def _written(host: str, port: int) -> str:
    """As the tables have it: words in the machine's own order of bytes."""
    packed = ipaddress.ip_address(host).packed
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def _overflow() -> int:
    try:
        return int(_OVERFLOW.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _USUAL_OVERFLOW
