"""Reads and writes API keys and sign-ins on the dashboard. A row has only a hash of a secret.

A sign-in made by one process is valid in all processes on the database, and ends in all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, and_, case, delete, func, insert, or_, select, update

from mcp_optimizer.db.gateways import announce
from mcp_optimizer.db.tables import api_key, sign_in
from mcp_optimizer.db.transactions import Transactions, milliseconds
from mcp_optimizer.domain.caller import Risk, Role
from mcp_optimizer.domain.credentials import ApiKey, SignIn, SignInKind
from mcp_optimizer.domain.gateways import ChangeKind

_ENDED_KNOWN_MS = 7 * 86_400_000
"""How long a key that was replaced is still known, so that its use can be answered with what has become of it."""

_MOST_ENDED = 10_000


class KeysMark(NamedTuple):
    """Changes whenever a key is made or revoked, by any process."""

    keys: int
    created_at_ms: int
    revoked: int


class StoredKeys(Transactions):
    """All keys ever made; revoked and expired ones stay, so people can see what became of them."""

    async def mark(self) -> KeysMark:
        table = api_key
        wanted = select(func.count(), func.max(table.c.created_at_ms), func.count(table.c.revoked_at_ms))
        async with self._reading() as connection:
            count, created, revoked = (await connection.execute(wanted)).one()
        return KeysMark(count, created or 0, revoked)

    async def living(self, now_ms: int) -> list[ApiKey]:
        """The keys that are valid now, by name."""
        return await self._read(_is_living(now_ms))

    async def known(self, now_ms: int) -> list[ApiKey]:
        """The keys that are valid now, and the latest of those that were replaced and have ended."""
        ended = and_(api_key.c.revoked_at_ms.is_(None), api_key.c.replaced_at_ms > now_ms - _ENDED_KNOWN_MS)
        newest = api_key.c.replaced_at_ms.desc()
        living = await self.living(now_ms)
        return [*living, *await self._read(ended, ~_is_living(now_ms), order=(newest,), most=_MOST_ENDED)]

    async def all(self) -> list[ApiKey]:
        """Every key, by name; keys of the same name oldest first."""
        return await self._read()

    async def living_named(self, name: str, now_ms: int) -> ApiKey | None:
        """The valid key of a name."""
        return next(iter(await self._read(_is_living(now_ms), api_key.c.name == name)), None)

    async def living_of(self, holder: str, now_ms: int) -> ApiKey | None:
        """The newest valid key of a person."""
        found = await self._read(
            _is_living(now_ms), api_key.c.holder == holder, order=(api_key.c.created_at_ms.desc(),), most=1
        )
        return found[0] if found else None

    async def latest(self, most: int, now_ms: int) -> list[ApiKey]:
        """At most `most` keys: valid ones, then revoked and expired ones, the newest of each first."""
        order = (case((_is_living(now_ms), 0), else_=1), api_key.c.created_at_ms.desc(), api_key.c.id)
        return await self._read(order=order, most=most)

    async def add(self, key: ApiKey, most: int) -> str:
        """Write a new key and return ""; or write nothing and return why: "name" (taken) or "many" (too many)."""
        living = _is_living(key.created_at_ms)
        async with self._writing(alone=True) as connection:
            named = select(api_key.c.id).where(living, api_key.c.name == key.name)
            if (await connection.execute(named)).first() is not None:
                return "name"
            count = select(func.count()).select_from(api_key).where(living)
            if (await connection.execute(count)).scalar_one() >= most:
                return "many"
            await connection.execute(insert(api_key).values(_row(key)))
            await announce(connection, ChangeKind.KEYS)
        return ""

    async def replace(
        self, name: str, make: Callable[[ApiKey], ApiKey], ends_ms: int, now_ms: int, most: int
    ) -> tuple[ApiKey | None, str]:
        """Write what `make` makes of the newest key of a name, and let the keys of this name end then at the latest.

        Returns the new key; or None and why nothing was written: "none" (no such key), "revoked" or "many".
        """
        living = and_(_is_living(now_ms), api_key.c.name == name)
        newest = select(api_key).where(api_key.c.name == name).order_by(api_key.c.created_at_ms.desc(), api_key.c.id)
        async with self._writing(alone=True) as connection:
            rows = (await connection.execute(newest)).mappings().all()
            # An expired key can be replaced too: everything of its caller is still there.
            known = [key for key in map(_key, rows) if key.replaced_at_ms is None]
            if not known:
                return None, "revoked" if rows else "none"
            if known[0].revoked_at_ms is not None:
                return None, "revoked"
            count = select(func.count()).select_from(api_key).where(_is_living(now_ms))
            if (await connection.execute(count)).scalar_one() >= most:
                return None, "many"
            ends = case(
                (or_(api_key.c.expires_at_ms.is_(None), api_key.c.expires_at_ms > ends_ms), ends_ms),
                else_=api_key.c.expires_at_ms,
            )
            is_replaced = or_(living, api_key.c.id == known[0].id)
            ending = update(api_key).where(is_replaced).values(expires_at_ms=ends, replaced_at_ms=now_ms)
            await connection.execute(ending)
            made = make(known[0])
            await connection.execute(insert(api_key).values(_row(made)))
            await announce(connection, ChangeKind.KEYS)
        return made, ""

    async def revoke(self, name: str, now_ms: int) -> bool:
        """Revoke the valid keys of a name, several while one replaces another; returns whether there was one."""
        return bool(await self._revoke(api_key.c.name == name, now_ms))

    async def revoke_holder(self, holder: str, now_ms: int) -> list[str]:
        """Revoke all valid keys of a person; returns their names."""
        return sorted(set(await self._revoke(api_key.c.holder == holder, now_ms)))

    async def _revoke(self, which: ColumnElement[bool], now_ms: int) -> list[str]:
        """Returns the names of those that were valid. Their users are no longer told that there is another key."""
        living, was_replaced = _is_living(now_ms), api_key.c.replaced_at_ms.is_not(None)
        ending = update(api_key).where(which, api_key.c.revoked_at_ms.is_(None)).values(revoked_at_ms=now_ms)
        async with self._writing(alone=True) as connection:
            found = list((await connection.execute(select(api_key.c.name).where(which, living))).scalars())
            await connection.execute(ending.where(or_(living, was_replaced)))
            await announce(connection, ChangeKind.KEYS)
        return found

    async def revoke_id(self, key_id: str, now_ms: int) -> str | None:
        """Revoke a key by its id and return its name; None if no valid key has the id."""
        found = await self._revoke(api_key.c.id == key_id, now_ms)
        return found[0] if found else None

    async def write_used(self, used: Mapping[str, int]) -> None:
        """Store when keys were last used, by id."""
        async with self._writing() as connection:
            for key_id, at_ms in sorted(used.items()):
                await connection.execute(update(api_key).where(api_key.c.id == key_id).values(used_at_ms=at_ms))

    async def _read(
        self,
        *conditions: ColumnElement[bool],
        order: Sequence[ColumnElement[Any]] = (api_key.c.name, api_key.c.created_at_ms),
        most: int | None = None,
    ) -> list[ApiKey]:
        wanted = select(api_key).where(*conditions).order_by(*order).limit(most)
        async with self._reading() as connection:
            return [_key(row) for row in (await connection.execute(wanted)).mappings()]


def _is_living(now_ms: int) -> ColumnElement[bool]:
    lasts = or_(api_key.c.expires_at_ms.is_(None), api_key.c.expires_at_ms > now_ms)
    return and_(api_key.c.revoked_at_ms.is_(None), lasts)


def _row(key: ApiKey) -> dict[str, Any]:
    servers = None if key.servers is None else sorted(key.servers)
    return {
        "id": key.id,
        "name": key.name,
        "digest": key.digest,
        "servers": json.dumps(servers),
        "risk": key.risk.value,
        "role": key.role.value,
        "profile": key.profile,
        "calls_per_minute": key.calls_per_minute,
        "created_at_ms": key.created_at_ms,
        "expires_at_ms": key.expires_at_ms,
        "holder": key.holder or None,
        "stands_for": key.stands_for or None,
    }


def _key(row: Mapping[Any, Any]) -> ApiKey:
    servers = json.loads(row["servers"])
    said = {**row, "servers": None if servers is None else frozenset(servers)}
    whose = {"holder": row["holder"] or "", "stands_for": row["stands_for"] or ""}
    return ApiKey(**{**said, **whose, "risk": Risk(row["risk"]), "role": Role(row["role"])})


class StoredSignIns(Transactions):
    """The valid sign-ins, by the hash of the value that the browser keeps."""

    async def add(self, digest: bytes, one: SignIn, most: int, now: float) -> None:
        """Store a sign-in, and keep at most `most` like it: of the same kind, and bound to the same key or to none.
        Sign-ins on the dashboard are alike whatever they are bound to.
        """
        like_it = and_(sign_in.c.kind == one.kind.value, sign_in.c.bound_to == one.bound_to)
        if one.kind is SignInKind.DASHBOARD:
            like_it = sign_in.c.kind == one.kind.value
        newest = select(sign_in.c.digest).where(like_it).order_by(sign_in.c.until_ms.desc()).limit(most - 1)
        row = {
            "digest": digest,
            "kind": one.kind.value,
            "bound_to": one.bound_to,
            "until_ms": milliseconds(one.until),
        }
        async with self._writing(alone=True) as connection:
            await connection.execute(delete(sign_in).where(sign_in.c.until_ms <= milliseconds(now)))
            kept = list((await connection.execute(newest)).scalars())
            await connection.execute(delete(sign_in).where(like_it, sign_in.c.digest.not_in(kept)))
            await connection.execute(sign_in.insert(), row)

    async def use_once(self, digest: bytes, until: float, now: float) -> bool:
        """Mark something as used until a time; returns whether it was not used before, by any process."""
        async with self._writing(alone=True) as connection:
            await connection.execute(delete(sign_in).where(sign_in.c.until_ms <= milliseconds(now)))
            known = select(sign_in.c.digest).where(sign_in.c.digest == digest)
            if (await connection.execute(known)).first() is not None:
                return False
            row = {"digest": digest, "kind": SignInKind.USED.value, "bound_to": "", "until_ms": milliseconds(until)}
            await connection.execute(sign_in.insert(), row)
        return True

    async def find(self, digest: bytes, now: float) -> SignIn | None:
        query = select(sign_in).where(sign_in.c.digest == digest, sign_in.c.until_ms > milliseconds(now))
        async with self._reading() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else _sign_in(row)

    async def end(self, digest: bytes, now: float) -> SignIn | None:
        """Delete a sign-in and return it if it was still valid. If several processes end it, only one gets it."""
        gone = delete(sign_in).where(sign_in.c.digest == digest).returning(sign_in)
        async with self._writing() as connection:
            row = (await connection.execute(gone)).first()
        return _sign_in(row) if row is not None and row.until_ms > milliseconds(now) else None


def _sign_in(row: Row[Any]) -> SignIn:
    return SignIn(SignInKind(row.kind), row.until_ms / 1_000, row.bound_to)
