"""Stores values by name, for server files to refer to. Called by commands and by the readers of server files.

A name must fit into a server file and into one line of output; a value is text. Both have a maximum length.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_optimizer.config.serverfile.variables import SecretValues
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.secrets import StoredSecrets
from mcp_optimizer.errors import ConfigurationError, SecretUnreadable, quoted
from mcp_optimizer.identity.vault import Vault, keys_of

LONGEST_NAME = 200
"""Maximum characters of a name."""
MOST_BYTES = 65_536
"""Maximum bytes of a value, in UTF-8."""

_KIND = "value"


class Secrets:
    """The values of one database, by name."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def set(self, name: str, value: str) -> None:
        """Store a value, replacing any earlier one."""
        check_name(name)
        await self._vault.write(_KIND, name, _encoded(value))

    async def names(self) -> dict[str, int]:
        """All names, and when each value was set, in milliseconds. Needs no key."""
        return await (await self._vault.stored()).names(_KIND)

    async def delete(self, name: str) -> bool:
        """Delete a value; returns whether it existed. Needs no key, so a secret whose key is lost can be deleted."""
        check_name(name)
        return await (await self._vault.stored()).delete(_KIND, name)

    async def values(self, names: Collection[str]) -> SecretValues:
        """The secrets with these names. One that cannot be read does not affect the others."""
        values, problems = {}, {}
        for name in sorted(names):
            try:
                check_name(name)
                body = await self._vault.read(_KIND, name)
            except (ConfigurationError, SecretUnreadable) as error:
                problems[name] = str(error)
            else:
                if body is not None:
                    values[name] = body.decode()
        return SecretValues(values, problems)

    async def rotate(self) -> int:
        """Encrypt everything in the database with a new key, including logins; returns the number of rows."""
        return await self._vault.rotate()


def check_name(name: str) -> None:
    """Raise ConfigurationError, with the reason, if the name cannot be used."""
    if not name or len(name) > LONGEST_NAME:
        raise ConfigurationError(f"The name of a secret has 1 to {LONGEST_NAME} characters, not {len(name):,}.")
    if not name.isprintable() or name != name.strip() or "}" in name:
        raise ConfigurationError(
            f"{quoted(name)} cannot be the name of a secret: it must be printable, without }} and without spaces "
            "around it."
        )


def value_of(given: bytes) -> str:
    """Decode a value given as bytes. Raises ConfigurationError, with the reason, if it cannot be used."""
    if not given:
        raise ConfigurationError("The value of a secret must not be empty.")
    if len(given) > MOST_BYTES:
        raise ConfigurationError(f"The value of a secret has at most {MOST_BYTES:,} bytes.")
    try:
        return given.decode()
    except UnicodeDecodeError:
        raise ConfigurationError("The value of a secret must be text in UTF-8.") from None


def _encoded(value: str) -> bytes:
    # Bytes that the terminal could not decode arrive as lone surrogates.
    return value_of(value.encode("utf-8", "surrogatepass")).encode()


@asynccontextmanager
async def opened_secrets(place: Path | str, environment: Mapping[str, str]) -> AsyncIterator[Secrets]:
    """The secrets of a database, which is opened only for this context. Raises CatalogError if it cannot be opened."""
    database = await open_database(place)

    async def stored() -> StoredSecrets:
        return StoredSecrets(database)

    try:
        yield Secrets(Vault(stored, keys_of(place, environment)))
    finally:
        await database.close()
