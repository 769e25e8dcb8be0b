"""What commands about clients' files need: this machine, and where copies from before a change are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.settings import APP_NAME, Settings

if TYPE_CHECKING:
    from mcp_optimizer.clients.backups import Backups
    from mcp_optimizer.clients.finding import Machine


def this_machine() -> Machine:
    """Where clients are looked for."""
    from mcp_optimizer.clients.finding import Machine

    return Machine(Path.home(), os.environ, sys.platform, Path.cwd())


def variables_of(path: Path) -> tuple[str, ...]:
    """The variables of the environment that a server file uses. Whether it can be read is said where it is used."""
    from mcp_optimizer.clients.finding import LARGEST, content_of
    from mcp_optimizer.textfiles.kinds import FileKind
    from mcp_optimizer.textfiles.reading import UnreadableText, parsed
    from mcp_optimizer.upstream.config import servers_of
    from mcp_optimizer.upstream.variables import variables_used

    try:
        document = parsed(content_of(path, LARGEST[FileKind.JSON]).decode("utf-8"), FileKind.JSON)
        return tuple(sorted(variables_used(servers_of(document, path)[1])))
    except (UnicodeDecodeError, UnreadableText, ConfigurationError):
        return ()


def backups_of(settings: Settings) -> Backups:
    """The copies of clients' files, beside the database."""
    from platformdirs import user_data_path

    from mcp_optimizer.clients.backups import Backups

    place = settings.database_place
    folder = place.parent if isinstance(place, Path) else user_data_path(APP_NAME)
    return Backups(folder.absolute() / "clients")
