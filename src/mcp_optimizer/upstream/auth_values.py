"""The values given under `auth` and `oauth`, however their keys are spelled, and the checks of each.

Reads files named for a secret or a key. No message quotes a value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcp_optimizer.textfiles.checked_values import UnusableEntry, text_of
from mcp_optimizer.upstream.entry_values import from_environment, located, meant

_LARGEST_FILE = 64 * 1024
_HIGHEST_PORT = 65_535
_SCOPE = re.compile(r"[!#-\[\]-~]+")
"""What RFC 6749 allows: printable ASCII without quotes and backslashes."""
_PRIVATE_KEY = re.compile(r"-----BEGIN (?:EC |RSA )?PRIVATE KEY-----(?!\s+Proc-Type: 4,ENCRYPTED)")


class GivenValues:
    """What an entry gives for logging in. Later values replace earlier ones."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._values: dict[str, tuple[str, Any]] = {}
        """By our spelling of the key: the key as written, for messages, and the value."""

    def add(
        self,
        section: str,
        values: Mapping[str, Any],
        keys: Collection[str],
        *,
        is_ours: bool = False,
        written: Mapping[str, str] | None = None,
    ) -> None:
        """Add the values of known keys. In a section of ours, a mistyped key is refused; in those of other programs,
        an empty value says nothing.
        """
        known = {_folded(key): key for key in keys}
        added: set[str] = set()
        for spelled, value in values.items():
            name = f"{section}.{spelled}" if section else (written or {}).get(spelled, spelled)
            key = known.get(_folded(spelled))
            if key is None:
                if is_ours and (ours := meant(spelled, keys)):
                    raise UnusableEntry(f'"{name}" is not known; did you mean "{ours}"?')
                continue
            if value is None or (not is_ours and value in ("", [])):
                continue
            if key in added:
                raise UnusableEntry(f'"{name}" is there in two spellings; keep one')
            added.add(key)
            self._values[key] = (name, value)

    def has(self, key: str) -> bool:
        """Whether there is a value."""
        return key in self._values

    def name(self, key: str) -> str:
        """A key as it is written in the entry."""
        return self._values[key][0]

    def text(self, key: str) -> str:
        """A text that says something; empty if it is not given."""
        if key not in self._values:
            return ""
        name, value = self._values[key]
        if not (found := text_of(value, name).strip()):
            raise UnusableEntry(f'"{name}" is empty; fill it in or remove it')
        return found

    def choice(self, key: str, choices: Collection[str]) -> str:
        """One of some words; empty if it is not given."""
        found = self.text(key)
        if found and found not in choices:
            raise UnusableEntry(f'"{self.name(key)}" must be one of {", ".join(sorted(choices))}')
        return found

    def url(self, key: str) -> str:
        """The address of something on the web; empty if it is not given."""
        found = self.text(key)
        if found and not _is_web_address(found):
            raise UnusableEntry(
                f'"{self.name(key)}" must be a URL that starts with https:// or http://, without password and fragment'
            )
        return found

    def port(self, key: str) -> int | None:
        """A port, also as text, as a variable gives it."""
        if key not in self._values:
            return None
        name, value = self._values[key]
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 6:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _HIGHEST_PORT:
            raise UnusableEntry(f'"{name}" must be a port, a number from 1 to {_HIGHEST_PORT}')
        return value

    def scopes(self) -> tuple[str, ...]:
        """`scopes` or `scope`: a list, or a text with blanks between them."""
        if not self.has("scopes") and not self.has("scope"):
            return ()
        name, value = self._values["scopes" if self.has("scopes") else "scope"]
        found = value.split() if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(item, str) and _SCOPE.fullmatch(item) for item in found):
            raise UnusableEntry(f'"{name}" must be a list of scopes, or a text with blanks between them')
        if not found:
            raise UnusableEntry(f'"{name}" is empty; name a scope or remove it')
        return tuple(dict.fromkeys(found))

    def secret(self, key: str) -> str:
        """A secret: itself, or the environment variable (`..._env`) or the file (`..._file`) that has it."""
        sources = [source for source in (key, f"{key}_env", f"{key}_file") if self.has(source)]
        if len(sources) > 1:
            raise UnusableEntry(f"{' and '.join(self.name(source) for source in sources)} say the same; keep one")
        if self.has(f"{key}_env"):
            return from_environment(self.text(f"{key}_env"), self.name(f"{key}_env"), self._environment)
        return self._file(f"{key}_file") or self.text(key)

    def private_key(self, key: str) -> str:
        """A private key from a file, in PEM; empty if it is not given."""
        found = self._file(key)
        if found and not _PRIVATE_KEY.search(found):
            raise UnusableEntry(f'the file of "{self.name(key)}" is not a private key in PEM without a passphrase')
        return found

    def _file(self, key: str) -> str:
        if not (named := self.text(key)):
            return ""
        file = f'the file of "{self.name(key)}"'
        path = located(named, self.name(key), self._folder)
        if not path.is_file():
            raise UnusableEntry(f"{file} does not exist; its path is relative to the folder of the server file")
        try:
            with path.open("rb") as opened:
                content = opened.read(_LARGEST_FILE + 1)
            found = content.decode("utf-8-sig").strip()
        except OSError as error:
            raise UnusableEntry(f"{file} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UnusableEntry(f"{file} is not text") from None
        if len(content) > _LARGEST_FILE:
            raise UnusableEntry(f"{file} is larger than {_LARGEST_FILE // 1024} KB")
        if not found:
            raise UnusableEntry(f"{file} is empty")
        return found


def _folded(key: str) -> str:
    """One spelling for `clientId`, `client_id` and `CLIENT_ID`."""
    return key.replace("_", "").lower()


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_plain = "@" not in parts.netloc and "#" not in url and url.isprintable() and " " not in url
    return parts.scheme in ("http", "https") and has_host and is_plain
