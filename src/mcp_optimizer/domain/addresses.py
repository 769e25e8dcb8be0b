"""Checks addresses in the settings, and recognises those that only this machine can reach. Pure.

An error never quotes an address, because it may contain a password.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def readable_database(value: str) -> str:
    """A database URL that is usable and can be printed without its password; raises otherwise."""
    scheme, separator, _ = value.partition("://")
    if not separator:
        return value
    if scheme not in ("postgresql", "postgres"):
        raise ValueError(
            f"{scheme}:// is not supported; give the name of a file, postgresql://user:password@host/name, or none"
        )
    try:
        before_path = urlsplit(value).netloc
    except ValueError:
        # Not chained, because the error may quote the password.
        before_path = "@@"
    if value.count("@") != before_path.count("@") or before_path.count("@") > 1:
        raise ValueError(
            "it cannot be read; write special characters of a password as %XX, such as %40 for @, %2F for /"
        )
    return value


def browser_address(value: str) -> str:
    """An address to which paths are appended: http or https, with a host, and nothing after the path."""
    if not value:
        return value
    try:
        parts = urlsplit(value)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or any(mark in value for mark in "?#@\\ ") or not value.isascii() or not value.isprintable():
        raise ValueError("it must be http:// or https:// with a host, and without a user, blank, ? or #")
    return value.rstrip("/")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
