"""Reads the file of environment variables that an entry names, as VS Code and Cursor do (`envFile`).

Called where entries become specs. No message quotes a line: it may be a secret.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from mcp_optimizer.textfiles.checked_values import UnusableEntry

_LARGEST = 64 * 1024
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][\w.-]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(?P<quote>["'`])(?P<value>.*)(?P=quote)\s*(?:#.*)?""")
_COMMENT = re.compile(r"(?:^|\s)#.*$")


def variables_of(path: Path, where: str) -> dict[str, str]:
    """The variables in a file. `where` it is named, for messages."""
    found: dict[str, str] = {}
    for number, line in enumerate(_text_of(path, where).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if (match := _LINE.fullmatch(line.strip())) is None:
            raise UnusableEntry(f'line {number} of the file of "{where}" is not NAME=VALUE')
        found[match.group(1)] = _value(match.group(2))
    return found


def _value(written: str) -> str:
    if (quoted := _QUOTED.fullmatch(written)) is None:
        return _COMMENT.sub("", written)
    value = quoted["value"]
    return value.replace("\\n", "\n").replace('\\"', '"') if quoted["quote"] == '"' else value


def _text_of(path: Path, where: str) -> str:
    file = f'the file of "{where}"'
    try:
        # Without waiting: a pipe may have nobody at its other end.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise UnusableEntry(f"{file} is not a file")
            content = opened.read(_LARGEST + 1)
    except FileNotFoundError:
        raise UnusableEntry(f"{file} does not exist") from None
    except OSError as error:
        raise UnusableEntry(f"{file} cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise UnusableEntry(f"{file} is larger than {_LARGEST // 1024} KB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnusableEntry(f"{file} is not text") from None
