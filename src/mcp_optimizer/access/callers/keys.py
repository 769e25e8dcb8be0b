"""API keys, `mcpo_<id>_<secret>`: makes and replaces them, reads them, and verifies them against the database. Called
by the `key` command, the dashboard and `verification`.

The secret has 256 random bits, so a plain hash of it is as safe as a slow one and costs a microsecond. `make_key` also
stores the new key; its text is shown once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import secrets
import string
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.domain.caller import Principal, Risk, Role
from mcp_optimizer.domain.credentials import ApiKey
from mcp_optimizer.errors import CatalogError, ConfigurationError, OptimizerError, listed, quoted
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.runtime.tasks import BackgroundTasks

if TYPE_CHECKING:
    from mcp_optimizer.db.credentials import StoredKeys

logger = logging.getLogger(__name__)


# The errors for a rejected credential; `door` turns them into HTTP responses.


class Rejected(OptimizerError):
    """The credential is not valid. The message goes to its sender and never quotes it."""


class ScopesMissing(OptimizerError):
    """The token is valid but lacks the scopes that every call needs."""

    def __init__(self, scopes: Sequence[str]) -> None:
        super().__init__("The token has too few scopes.")
        self.scopes = tuple(scopes)


class CannotVerify(OptimizerError):
    """The credential cannot be verified at the moment. Trying again later may help."""


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
            ends = datetime.combine(date.fromisoformat(text), datetime.max.time(), UTC)
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


# Verifies API keys against the database, which it reads at most a few times a second, however many keys are sent. All
# living keys are in memory, and those that were replaced lately. Checking for changes is one small query, made ahead
# of time while keys are in use, so a valid key rarely waits for it. Changes by another process take effect within two
# seconds; if they cannot be read, every key is refused.

_FRESH = 1.0
"""Age in seconds from which the keys are checked for changes in the background."""

_OLDEST = 2.0
"""Age in seconds from which the keys are not used without a new check."""

_UNKNOWN = 0.2
"""Seconds between two checks that unknown keys cause."""

_USE_NOTED = 60.0
"""Seconds between two writes that the same key was used."""

_LAST_LOOK = 1.0
"""Seconds for a check in progress to finish when the gateway stops."""

_AFTER_FAILURE = 0.5
_WARNED = 60.0
"""Seconds between two attempts, and between two warnings, while the database does not answer."""

_NO_GOOD = "The key is unknown, expired or revoked."
_REPLACED = "This key has ended: another one has replaced it. Use the new key."
_NO_ANSWER = "Keys cannot be verified: the database does not answer. Try again shortly."


class KeyStore(Protocol):
    """The stored keys. `mark` returns a value that changes with them."""

    async def mark(self) -> object: ...
    async def known(self, now_ms: int) -> Sequence[ApiKey]: ...
    async def write_used(self, used: Mapping[str, int]) -> None: ...


class _Known(NamedTuple):
    keys: Mapping[str, ApiKey]
    mark: object
    at: float


class KnownKeys:
    """The living keys of a database."""

    def __init__(
        self,
        stored: Callable[[], Awaitable[KeyStore | None]],
        clock: Callable[[], float] = time.monotonic,
        breaker: Breaker | None = None,
    ) -> None:
        self._stored = stored
        self._breaker = breaker or Breaker()
        self._clock = clock
        self._known = _Known({}, None, float("-inf"))
        self._looking: asyncio.Task[None] | None = None
        self._looks = BackgroundTasks(logger, "Cannot read the keys", expected=(CannotVerify,))
        self._writes = BackgroundTasks(logger, "Cannot write when keys were used", expected=(CatalogError,))
        self._noted: dict[str, float] = {}
        self._failed_at = self._warned_at = self._changed_at = float("-inf")

    def changed(self, _names: Sequence[str] = ()) -> None:
        """A key was made or revoked: use nothing that was read before."""
        self._changed_at = self._clock()
        self._known = self._known._replace(at=float("-inf"))

    async def principal(self, text: str) -> Principal:
        """The key's holder; raises Rejected if the key is not valid, CannotVerify if the database does not answer."""
        key_id = id_of(text)
        if key_id is None:
            raise Rejected("This is not a key of this gateway.")
        key = await self._found(key_id)
        if key is None or not is_secret_of(text, key):
            raise Rejected(_NO_GOOD)
        if not key.is_living(_now_ms()):
            raise Rejected(_NO_GOOD if key.replaced_at_ms is None else _REPLACED)
        self._note_use(key.id)
        return key.principal

    async def holder(self, key_id: str) -> Principal:
        """The holder of a key that was verified before, by its id, if it still lives; raises as `principal` does."""
        key = await self._found(key_id)
        if key is None or not key.is_living(_now_ms()):
            raise Rejected(_NO_GOOD)
        self._note_use(key.id)
        return key.principal

    async def close(self) -> None:
        """Finish reads and writes in progress."""
        with contextlib.suppress(TimeoutError):
            # A connection whose opening is cancelled would be lost.
            await asyncio.wait_for(self._looks.settled(), _LAST_LOOK)
        await self._looks.close()
        await self._writes.settled()

    async def _found(self, key_id: str) -> ApiKey | None:
        """A key of this id that was living when it was last read, or was replaced lately."""
        age = self._clock() - self._known.at
        if age > (_OLDEST if key_id in self._known.keys else _UNKNOWN):
            await self._look()
            if self._known.at < self._changed_at:
                # That check had begun before the change.
                await self._look()
        elif age > _FRESH:
            self._begin_look()
        return self._known.keys.get(key_id)

    async def _look(self) -> None:
        # Shielded: other callers may wait for the same check.
        await asyncio.shield(self._begin_look())

    def _begin_look(self) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._looking = self._looks.spawn(self._read())
        return self._looking

    async def _read(self) -> None:
        begun = self._clock()
        if begun - self._failed_at < _AFTER_FAILURE:
            raise CannotVerify(_NO_ANSWER)
        try:
            keys, mark = await self._breaker.within(self._read_stored)
        except CatalogError as error:
            self._failed(begun, error)
            raise CannotVerify(_NO_ANSWER) from error
        self._noted = {key_id: at for key_id, at in self._noted.items() if key_id in keys}
        self._known = _Known(keys, mark, begun if begun >= self._changed_at else float("-inf"))

    async def _read_stored(self) -> tuple[Mapping[str, ApiKey], object]:
        stored = await self._stored()
        if stored is None:
            raise CatalogError("the database is not open")
        known = self._known
        # The mark first: a change between the two reads is then read again with the next check.
        mark = await stored.mark()
        if mark == known.mark:
            return known.keys, mark
        return {key.id: key for key in await stored.known(_now_ms())}, mark

    def _failed(self, at: float, error: CatalogError) -> None:
        self._failed_at = at
        if at - self._warned_at > _WARNED:
            self._warned_at = at
            logger.warning("Keys cannot be verified, so every key is refused: %s", error)

    def _note_use(self, key_id: str) -> None:
        now = self._clock()
        if now - self._noted.get(key_id, float("-inf")) < _USE_NOTED:
            return
        self._noted[key_id] = now
        self._writes.spawn(self._write_used(key_id, _now_ms()))

    async def _write_used(self, key_id: str, at_ms: int) -> None:
        if (stored := await self._stored()) is not None:
            await stored.write_used({key_id: at_ms})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def opened_keys(place: Path | str) -> AsyncIterator[StoredKeys]:
    """The keys of a database, which is opened only for this context. Raises CatalogError if it cannot be opened."""
    from mcp_optimizer.db.credentials import StoredKeys
    from mcp_optimizer.db.database import open_database

    database = await open_database(place)
    try:
        yield StoredKeys(database)
    finally:
        await database.close()
