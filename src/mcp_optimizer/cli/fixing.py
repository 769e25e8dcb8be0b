"""What `doctor --fix` does: shows the corrections of a server file, asks, and writes them, or nothing.

The edits keep all other bytes. A file that changes meanwhile stays as it is.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import in_a_line
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from mcp_optimizer.upstream.entry_fixes import EntryFix

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Corrections:
    """What can be corrected in a server file, and what was read of it."""

    file: Path
    content: bytes
    entries: tuple[EntryFix, ...] = ()
    opens_secrets: bool = False
    """Whether it has keys, and other users can read it."""

    @property
    def lines(self) -> list[str]:
        """What each does, for people."""
        shown = [in_a_line(f"{fix.server}: {fix.says}") for fix in self.entries]
        return [*shown, f"let only you read {self.file}, which has keys"] if self.opens_secrets else shown


def corrections(settings: Settings) -> Corrections | None:
    """The corrections of the configured server file; None if it has none, or cannot be read."""
    from mcp_optimizer.runtime.regular_files import read_regular
    from mcp_optimizer.textfiles.kinds import LARGEST, FileKind, UnreadableText
    from mcp_optimizer.textfiles.reading import parsed
    from mcp_optimizer.upstream.config import parse_server_file, servers_of
    from mcp_optimizer.upstream.entry_fixes import entry_fixes
    from mcp_optimizer.upstream.itself import SAME_FILE

    if settings.demo:
        return None
    path = settings.server_file
    try:
        content = read_regular(path, LARGEST[FileKind.JSON])
        settings.check_server_file(path, content)
        text = content.decode("utf-8-sig")
        document = parsed(text, FileKind.JSON)
        specs = parse_server_file(text, path, os.environ)
    except (OSError, UnicodeDecodeError, UnreadableText, ConfigurationError):
        # Whoever reads it for its servers says why.
        return None
    themselves = {spec.name for spec in specs if spec.problem.startswith(SAME_FILE)}
    # As they are written: an entry with a mistake has its keys too.
    entries = servers_of(document, path)[1].values()
    has_keys = any(isinstance(entry, dict) and (entry.get("env") or entry.get("headers")) for entry in entries)
    found = Corrections(path, content, tuple(entry_fixes(document, themselves)), has_keys and _is_open(path))
    return found if found.lines else None


def _is_open(path: Path) -> bool:
    """Whether it is a file of ours that others can read."""
    if not hasattr(os, "getuid"):
        return False
    found = path.stat()
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and bool(found.st_mode & _OTHERS)


def fix(found: Corrections, *, yes: bool) -> bool:
    """Show the corrections on stderr, ask unless `yes`, and write them. Whether they were written."""
    print(f"{found.file}:", file=sys.stderr)
    for line in found.lines:
        print(f"  {line}", file=sys.stderr)
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigurationError(
                "There is no terminal to ask at. If these corrections are right, repeat it with --yes."
            )
        if not typer.confirm("Make these corrections?", err=True):
            return False
    _write(found)
    return True


def _write(found: Corrections) -> None:
    from mcp_optimizer.folders.trusted import carry_over
    from mcp_optimizer.textfiles.editing import CannotEdit
    from mcp_optimizer.textfiles.writing import replace_file

    try:
        if found.entries:
            text = edited(found.content.decode(), found.entries)
            replace_file(found.file, text, expected=found.content)
            carry_over(found.file, found.content, text.encode())
        if found.opens_secrets:
            found.file.chmod(0o600)
    except (OSError, CannotEdit) as error:
        raise ConfigurationError(f"{found.file} stays as it is: {error}.") from error


def edited(text: str, fixes: Sequence[EntryFix]) -> str:
    """The text with all corrections, every other byte kept."""
    from mcp_optimizer.textfiles.editing import with_value, without_value
    from mcp_optimizer.textfiles.kinds import FileKind

    for one in fixes:
        if one.removes:
            text = without_value(text, FileKind.JSON, one.path)
        else:
            text = with_value(text, FileKind.JSON, one.path, one.value)
    return text
