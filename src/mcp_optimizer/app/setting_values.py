"""What single settings mean, for the parts of a gateway, and for commands that build none. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.pins import TrustMode
from mcp_optimizer.errors import ConfigurationError


def items(text: str) -> list[str]:
    """The items of a setting that is a comma-separated list."""
    return [item.strip() for item in text.split(",") if item.strip()]


def check_driver(settings: Settings) -> None:
    """Reported at once, not when the catalog is opened, because the user must act."""
    if isinstance(settings.database_place, str) and find_spec("asyncpg") is None:
        raise ConfigurationError(
            "PostgreSQL needs another package: pip install 'mcp-optimizer-gateway[postgres]', "
            "or use a file with --database FILE."
        )


def place_of(settings: Settings, what: str) -> Path | str:
    """The database that keeps `what`, for commands that work on nothing else."""
    if (place := settings.database_place) is None:
        raise ConfigurationError(
            f"{what} are kept in the catalog database, and --database none stores nothing. Use a file or PostgreSQL."
        )
    check_driver(settings)
    return place


def trust_modes(settings: Settings, specs: Iterable[ServerSpec]) -> dict[str, TrustMode]:
    """How changed tools are handled, per server: by the settings for it, else by its entry, else by its kind."""
    kinds = {True: TrustMode(settings.trust_local), False: TrustMode(settings.trust_remote)}
    named = settings.servers_trust
    return {
        spec.name: TrustMode(named[spec.name])
        if spec.name in named
        else spec.trust or kinds[spec.transport is Transport.STDIO]
        for spec in specs
    }
