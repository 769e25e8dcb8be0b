"""Makes, replaces and reads API keys: `mcpo_<id>_<secret>`. Called by the `key` command, the dashboard and
`known_keys`.

The secret has 256 random bits, so a plain hash of it is as safe as a slow one and costs a microsecond. `make_key` also
stores the new key; its text is shown once.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Protocol

from mcp_optimizer.domain.credentials import ApiKey
from mcp_optimizer.domain.principal import Risk, Role
from mcp_optimizer.errors import ConfigurationError, listed, quoted
from mcp_optimizer.runtime.patterns import regex

PREFIX = "mcpo_"
PROFILES = ("minimal", "standard", "full")
LONGEST_NAME = 64
LONGEST_HOLDER = 128
MOST_SERVERS = 1_000

_KEY = regex(r"mcpo_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_ALPHABET = string.ascii_lowercase + string.digits
_SPAN = regex(r"([0-9]{1,6})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_OVERLAP = regex(r"([0-9]{1,6})([mhdw])")
_MINUTES = {"m": 1, "h": 60, "d": 1_440, "w": 10_080}
_LONGEST_OVERLAP = timedelta(days=90)
_LONGEST = timedelta(days=36_500)


@dataclass(frozen=True)
class Wanted:
    """The permissions requested for a new key."""

    name: str
    servers: Collection[str] | None = None
    risk: Risk = Risk.READ
    role: Role = Role.NONE
    profile: str | None = None
    calls_per_minute: int | None = None
    expires: str = "90d"
    holder: str = ""
    """The person whose keys are one caller. It gives access to all that the person's other keys lead to."""


def new_key(wanted: Wanted, now: datetime) -> tuple[ApiKey, str]:
    """A key as it is stored, and its text, which cannot be recovered from the stored key."""
    _check(wanted)
    key_id, secret = _random()
    ends = expiry(wanted.expires, now)
    key = ApiKey(
        id=key_id,
        name=wanted.name,
        digest=_digest(secret),
        created_at_ms=milliseconds(now),
        servers=None if wanted.servers is None else frozenset(wanted.servers),
        risk=wanted.risk,
        role=wanted.role,
        profile=wanted.profile,
        calls_per_minute=wanted.calls_per_minute,
        expires_at_ms=None if ends is None else milliseconds(ends),
        holder=wanted.holder,
    )
    return key, f"{PREFIX}{key_id}_{secret}"


def replacement(old: ApiKey, expires: str | None, now: datetime) -> tuple[ApiKey, str]:
    """A key of the same caller with the same rights, and its text. It lasts as long as the old one was to last, unless
    `expires` says otherwise.
    """
    key_id, secret = _random()
    at = milliseconds(now)
    if expires is not None:
        ends = expiry(expires, now)
        ends_ms = None if ends is None else milliseconds(ends)
    else:
        ends_ms = None if old.expires_at_ms is None else at + old.expires_at_ms - old.created_at_ms
    key = replace(
        old,
        id=key_id,
        digest=_digest(secret),
        created_at_ms=at,
        expires_at_ms=ends_ms,
        used_at_ms=None,
        stands_for=old.stands_for or old.id,
    )
    return key, f"{PREFIX}{key_id}_{secret}"


def overlap_of(text: str) -> timedelta:
    """How long a key stays valid beside the one that replaces it: `30m`, `1h`, `7d`, or 0."""
    match = _OVERLAP.fullmatch(text)
    if match is None and text != "0":
        raise ConfigurationError(f"--overlap {quoted(text)} is not a length of time: write 30m, 1h, 7d, or 0.")
    lasts = timedelta(minutes=int(match.group(1)) * _MINUTES[match.group(2)]) if match is not None else timedelta()
    if lasts > _LONGEST_OVERLAP:
        raise ConfigurationError(
            f"--overlap {quoted(text)} is over {_LONGEST_OVERLAP.days} days, the longest. Make another key instead."
        )
    return lasts


def id_of(text: str) -> str | None:
    """The id in the text of a key; None if the text is not a key."""
    match = _KEY.fullmatch(text)
    return match.group(1) if match is not None else None


def is_secret_of(text: str, key: ApiKey) -> bool:
    """Whether this is the text of the key. Takes the same time no matter how much of the secret is right."""
    match = _KEY.fullmatch(text)
    return match is not None and match.group(1) == key.id and hmac.compare_digest(_digest(match.group(2)), key.digest)


def expiry(text: str, now: datetime) -> datetime | None:
    """When a key expires: after `12h`, `90d` or `8w`, at the end of a day such as `2027-01-31` (UTC), or `never`."""
    if text == "never":
        return None
    if (match := _SPAN.fullmatch(text)) is not None:
        lasts = timedelta(hours=int(match.group(1)) * _HOURS[match.group(2)])
        ends = now + min(lasts, 2 * _LONGEST)
    else:
        try:
            ends = datetime.combine(date.fromisoformat(text), time.max, UTC)
        except ValueError:
            raise ConfigurationError(
                f"--expires {quoted(text)} is no length of time (12h, 90d, 8w), no day (2027-01-31), and not never."
            ) from None
    if ends <= now:
        raise ConfigurationError(f"--expires {quoted(text)} is not in the future.")
    if ends - now > _LONGEST:
        raise ConfigurationError(f"--expires {quoted(text)} is over a hundred years away. Say never, if you mean it.")
    return ends


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


def _random() -> tuple[str, str]:
    """A new id and a new secret."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(12)), secrets.token_urlsafe(32)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _check(wanted: Wanted) -> None:
    name = wanted.name
    if not name or len(name) > LONGEST_NAME:
        raise ConfigurationError(f"The name of a key has 1 to {LONGEST_NAME} characters, not {len(name):,}.")
    if not name.isprintable() or name != name.strip():
        raise ConfigurationError(
            f"{quoted(name)} cannot be the name of a key: it must be printable, without spaces around it."
        )
    check_holder(wanted.holder)
    if wanted.servers is not None and not 0 < len(wanted.servers) <= MOST_SERVERS:
        raise ConfigurationError("--servers names no server. Leave it out for a key that opens all of them.")
    if wanted.profile is not None and wanted.profile not in PROFILES:
        raise ConfigurationError(f"--profile must be one of {listed(PROFILES)}, not {quoted(wanted.profile)}.")
    if wanted.calls_per_minute is not None and not 0 <= wanted.calls_per_minute <= 1_000_000:
        raise ConfigurationError("--calls-per-minute must be between 0 (no limit) and 1,000,000.")


def check_holder(holder: str) -> None:
    """Raise ConfigurationError if this cannot be the name of a person. Spaces would hide where the name ends."""
    if len(holder) > LONGEST_HOLDER:
        raise ConfigurationError(f"The holder of a key has at most {LONGEST_HOLDER} characters, not {len(holder):,}.")
    if not holder.isprintable() or any(mark.isspace() for mark in holder):
        raise ConfigurationError(
            f"{quoted(holder)} cannot be the holder of a key: it must be printable and without spaces, such as an "
            "e-mail address."
        )


MOST_KEYS = 10_000
"""Maximum living keys. A gateway keeps all of them in memory."""


_MANY = f"There are {MOST_KEYS:,} keys already. Revoke some that are no longer needed."


class NewKeys(Protocol):
    """Stores new keys."""

    async def add(self, key: ApiKey, most: int) -> str: ...


async def make_key(stored: NewKeys, wanted: Wanted) -> tuple[ApiKey, str]:
    """The new key, now stored, and its text; raises ConfigurationError if such a key cannot be made."""
    key, text = new_key(wanted, datetime.now(UTC))
    problem = await stored.add(key, MOST_KEYS)
    if problem == "name":
        raise ConfigurationError(
            f"There is a key {quoted(key.name)} already. Choose another name, or end that one first with "
            f"`mcp-optimizer key revoke {quoted(key.name)}`."
        )
    if problem == "many":
        raise ConfigurationError(_MANY)
    return key, text


class ReplacedKeys(Protocol):
    """Stores keys in place of others."""

    async def replace(
        self, name: str, make: Callable[[ApiKey], ApiKey], ends_ms: int, now_ms: int, most: int
    ) -> tuple[ApiKey | None, str]: ...


async def rotate_key(
    stored: ReplacedKeys, name: str, overlap: timedelta, expires: str | None = None
) -> tuple[ApiKey, str]:
    """The key that replaces the one of a name, now stored, and its text; the old one ends after `overlap`. Raises
    ConfigurationError if there is none to replace.
    """
    now, texts = datetime.now(UTC), [""]

    def made(old: ApiKey) -> ApiKey:
        key, texts[0] = replacement(old, expires, now)
        return key

    key, problem = await stored.replace(name, made, milliseconds(now + overlap), milliseconds(now), MOST_KEYS)
    if key is not None:
        return key, texts[0]
    told = {
        "none": f"There is no key {quoted(name)}. `mcp-optimizer key list` shows all.",
        "revoked": f"The key {quoted(name)} was revoked. Make a new one with `mcp-optimizer key create`.",
        "many": _MANY,
    }
    raise ConfigurationError(told[problem])
