"""Remembers which server files and settings files of working folders a user trusts, by their path and digest.

Called by `settings`, which chooses the files, by code that reads one of them, and by `folder` commands. The bytes
compared are the bytes used, so replacing a file in between has no effect. The user's own configuration folder is
always trusted, and so is a file named on the command line; this module sees neither.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from platformdirs import user_data_path

from mcp_optimizer.config.textfiles.writing import FileChanged, replace_file
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.local_files import read_own

logger = logging.getLogger(__name__)

APP_NAME = "mcp-optimizer"
SERVER_FILE = "mcp.json"
SETTINGS_FILE = "mcp-optimizer.toml"

LARGEST = 5_000_000
"""Maximum bytes of a file that can be trusted, and of our own notes."""

_OTHERS_WRITE = 0o022
_ATTEMPTS = 20
"""Attempts to write our notes while other commands change them."""

NEVER_TRUSTED = "it is not trusted"
CHANGED = "it changed since it was trusted"
NO_FILE = "it is not a regular file"


@dataclass(frozen=True)
class TrustedFile:
    """The content that a user trusts."""

    digest: str
    at: str
    """When it was trusted, in ISO 8601."""


@dataclass(frozen=True)
class FolderFile:
    """A file of the working folder that the user did not name."""

    path: Path
    content: bytes | None = field(default=None, repr=False)
    """Its content, if the user trusts exactly that content."""
    problem: str = ""
    """The reason why it is not used."""


def notes_file() -> Path:
    """The notes about trusted files."""
    return user_data_path(APP_NAME) / "trusted-files.json"


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def place_of(path: Path) -> Path:
    """A path as the notes have it. Links to folders are followed, a link at its end is not.

    A link elsewhere to a trusted file is another file: relative paths in it mean something else there.
    """
    whole = Path(os.path.abspath(path))
    return Path(os.path.realpath(whole.parent)) / whole.name


def folder_file(name: str, own: Path, folder: Path | None = None) -> FolderFile | None:
    """The file of this name in a folder, by default the working one; None if missing, or if it is the user's own.

    It is read only if a file at this path was trusted before.
    """
    try:
        place = place_of((folder or Path.cwd()) / name)
    except OSError:
        # The folder was deleted.
        return None
    if not os.path.lexists(place) or _is_same(place, own):
        return None
    if not os.path.isfile(place):
        # A folder, or a pipe without a writer: checked, never opened.
        return FolderFile(place, problem=NO_FILE)
    try:
        known = trusted_files().get(str(place))
        if known is None:
            return FolderFile(place, problem=NEVER_TRUSTED)
        content = read_own(place, LARGEST)
    except (OSError, ConfigurationError) as error:
        return FolderFile(place, problem=str(error).rstrip("."))
    if digest_of(content) != known.digest:
        return FolderFile(place, problem=CHANGED)
    return FolderFile(place, content)


def refuse_untrusted(path: Path, content: bytes) -> None:
    """Raise unless the user trusts this content of the file."""
    known = trusted_files().get(str(place_of(path)))
    if known is None or known.digest != digest_of(content):
        why = NEVER_TRUSTED if known is None else CHANGED
        raise ConfigurationError(
            f"{path} is not used: {why}. Look at it, then: mcp-optimizer folder trust, in its folder."
        )


def trusted_files() -> Mapping[str, TrustedFile]:
    """All trusted files, by path. Raises ConfigurationError if the notes cannot be read."""
    return _read_notes()[1]


def trust(contents: Mapping[Path, bytes]) -> None:
    """Remember that the user trusts these contents."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    new = {str(place_of(path)): TrustedFile(digest_of(content), now) for path, content in contents.items()}
    _change_notes(lambda known: {**known, **new})


def forget(places: Iterable[str]) -> None:
    """Stop trusting these files."""
    gone = frozenset(places)
    _change_notes(lambda known: {place: one for place, one in known.items() if place not in gone})


def carry_over(path: Path, before: bytes | None, after: bytes) -> None:
    """Keep a file trusted after a command of the user changed it, if it was exactly the trusted content before.

    If that cannot be saved, the user is asked again.
    """
    try:
        known = trusted_files().get(str(place_of(path)))
        if before is not None and known is not None and known.digest == digest_of(before):
            trust({path: after})
    except (OSError, ConfigurationError) as error:
        logger.warning("%s has to be trusted again. %s", path, error)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _read_notes() -> tuple[bytes | None, dict[str, TrustedFile]]:
    """Our notes, as bytes and parsed. Refused if other users can write to them."""
    path = notes_file()
    try:
        content = read_own(path, LARGEST, forbidden=_OTHERS_WRITE)
    except (FileNotFoundError, NotADirectoryError):
        return None, {}
    except OSError as error:
        raise ConfigurationError(f"No file of a folder is trusted, because {path} cannot be used: {error}.") from None
    try:
        files = json.loads(content)["files"]
        return content, {str(place): TrustedFile(str(one["sha256"]), str(one["at"])) for place, one in files.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ConfigurationError(
            f"No file of a folder is trusted, because {path} is damaged. Delete it, and trust your folders again."
        ) from None


def _change_notes(change: Callable[[dict[str, TrustedFile]], dict[str, TrustedFile]]) -> None:
    path = notes_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(_ATTEMPTS):
            before, known = _read_notes()
            files = {place: {"sha256": one.digest, "at": one.at} for place, one in sorted(change(known).items())}
            try:
                # Written as ASCII: some paths are not valid text.
                replace_file(path, json.dumps({"files": files}, indent=1) + "\n", expected=before, private=True)
            except FileChanged:
                continue
            return
    except OSError as error:
        raise ConfigurationError(f"Cannot write {path}: {error.strerror or error}.") from None
    raise ConfigurationError(f"Cannot write {path}: other commands change it all the time. Run the command again.")
