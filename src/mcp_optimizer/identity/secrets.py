"""Values that a user stores by name, for server files to refer to. Called by commands and by whoever reads those files.

A name can be written in a server file and shown in a line; a value is text. Both have a limit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_optimizer.config.serverfile.variables import SecretValues
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.secrets import StoredSecrets
from mcp_optimizer.errors import ConfigurationError, SecretUnreadable, quoted
from mcp_optimizer.identity.keys import keys_of
from mcp_optimizer.identity.vault import Vault

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
        """Store a value, replacing the one before."""
        check_name(name)
        await self._vault.write(_KIND, name, _encoded(value))

    async def names(self) -> dict[str, int]:
        """All names, and when each value was set, in milliseconds. Needs no key."""
        return await (await self._vault.stored()).names(_KIND)

    async def delete(self, name: str) -> bool:
        """Whether there was one. Needs no key, so that a secret whose key is lost can be deleted."""
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
        """Encrypt everything in the database with a new key, logins too; how many that were."""
        return await self._vault.rotate()


def check_name(name: str) -> None:
    """A name that cannot be used is an error that says why."""
    if not name or len(name) > LONGEST_NAME:
        raise ConfigurationError(f"The name of a secret has 1 to {LONGEST_NAME} characters, not {len(name):,}.")
    if not name.isprintable() or name != name.strip() or "}" in name:
        raise ConfigurationError(
            f"{quoted(name)} cannot be the name of a secret: it must be printable, without }} and without spaces "
            "around it."
        )


def value_of(given: bytes) -> str:
    """A value that came as bytes. One that cannot be used is an error that says why."""
    if not given:
        raise ConfigurationError("The value of a secret must not be empty.")
    if len(given) > MOST_BYTES:
        raise ConfigurationError(f"The value of a secret has at most {MOST_BYTES:,} bytes.")
    try:
        return given.decode()
    except UnicodeDecodeError:
        raise ConfigurationError("The value of a secret must be text in UTF-8.") from None


def _encoded(value: str) -> bytes:
    # What a terminal could not decode arrives as halves of characters.
    return value_of(value.encode("utf-8", "surrogatepass")).encode()


@asynccontextmanager
async def opened_secrets(place: Path | str, environment: Mapping[str, str]) -> AsyncIterator[Secrets]:
    """The secrets of a database that is opened only for them. Raises CatalogError if it cannot be opened."""
    database = await open_database(place)

    async def stored() -> StoredSecrets:
        return StoredSecrets(database)

    try:
        yield Secrets(Vault(stored, keys_of(place, environment)))
    finally:
        await database.close()
