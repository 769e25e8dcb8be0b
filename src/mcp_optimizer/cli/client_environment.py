"""What `connect` and `import` need to know about this machine.

Where clients' files are looked for, where backups are kept, how a client starts this program, and how to run a
client's own command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_optimizer import __version__
from mcp_optimizer.config.settings import APP_NAME, Settings
from mcp_optimizer.errors import ConfigurationError

if TYPE_CHECKING:
    from mcp_optimizer.config.clients.applying import Backups
    from mcp_optimizer.config.clients.files import Machine


def this_machine() -> Machine:
    """Where clients are looked for."""
    from mcp_optimizer.config.clients.files import Machine

    return Machine(Path.home(), os.environ, sys.platform, Path.cwd())


def variables_of(path: Path) -> tuple[str, ...]:
    """The environment variables that a server file uses. An unreadable file is reported where it is used."""
    from mcp_optimizer.config.clients.files import LARGEST, content_of
    from mcp_optimizer.config.serverfile.parser import servers_of
    from mcp_optimizer.config.serverfile.variables import variables_used
    from mcp_optimizer.config.textfiles.kinds import FileKind
    from mcp_optimizer.config.textfiles.reading import UnreadableText, parsed

    try:
        document = parsed(content_of(path, LARGEST[FileKind.JSON]).decode("utf-8"), FileKind.JSON)
        return tuple(sorted(variables_used(servers_of(document, path)[1])))
    except (UnicodeDecodeError, UnreadableText, ConfigurationError):
        return ()


def backups_of(settings: Settings) -> Backups:
    """The backups of clients' files, beside the database."""
    from platformdirs import user_data_path

    from mcp_optimizer.config.clients.applying import Backups

    place = settings.database_place
    folder = place.parent if isinstance(place, Path) else user_data_path(APP_NAME)
    return Backups(folder.absolute() / "clients")


_SECONDS_OF_A_COMMAND = 60


PROGRAM = "mcp-optimizer-gateway"
"""The script that no other package has; `mcp-optimizer` may be another package's."""


def this_program() -> list[str]:
    """The command that starts this program from any folder: a path, or uvx with our name and version."""
    from mcp_optimizer.config.clients.connecting import is_temporary

    ending = ".exe" if sys.platform == "win32" else ""
    beside = Path(sys.executable).absolute().with_name(f"{PROGRAM}{ending}")
    if is_temporary(str(beside)) and (uvx := shutil.which("uvx")):
        return [str(Path(uvx).absolute()), f"{PROGRAM}@{__version__}"]
    if beside.is_file():
        return [str(beside)]
    if found := shutil.which(PROGRAM):
        return [str(Path(found).absolute())]
    return [str(Path(sys.executable).absolute()), "-P", "-m", "mcp_optimizer_gateway"]


def run_client(words: Sequence[str]) -> str:
    """Run a client's command; returns the error, if any. Its output may quote its file, so it is not shown."""
    shown = shlex.join(words[:3])
    program = shutil.which(words[0]) or words[0]
    try:
        ended = subprocess.run(
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS_OF_A_COMMAND,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"`{shown}` did not end within {_SECONDS_OF_A_COMMAND} s, so the file was edited"
    except OSError as error:
        return f"`{shown}` could not be started ({error.strerror}), so the file was edited"
    return f"`{shown}` failed with code {ended.returncode}, so the file was edited" if ended.returncode else ""
