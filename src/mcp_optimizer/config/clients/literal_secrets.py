"""Finds secrets that are written out in an entry, and replaces them with references.

Pure; called by `importing`. Recognises secrets by names (`API_TOKEN`, `Authorization`, `--api-key`), also those inside
values, by passwords in URLs, and by known forms of tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from mcp_optimizer.config.known_clients.entry_reading import has_variable
from mcp_optimizer.config.serverfile.redaction import has_random_part, holds_secret, is_named_secret
from mcp_optimizer.runtime.patterns import regex

_SCHEME = regex(r"(?:Bearer|Basic|Token|ApiKey|Digest)\s+", re.IGNORECASE)
_PARAMETER = regex(r"(?<=[?&])([^=&#]+)=([^&#]+)")
_PASSWORD = regex(r"(?<=://)([^/?#\s@:]*:)([^/?#\s@]+)@")
_VARIABLE = regex(r"[A-Za-z_]\w*")
_REPLACED = regex(r"\$\{([^{}]*)\}")
_NO_SECRETS = frozenset("type description cwd envFile timeout disabled enabled tools trust".split())
"""Keys whose values are names, paths and switches."""
_UNUSUAL = regex(r"[^\w.-]+")
_LONGEST_PART = 90


class SecretsOfEntry:
    """Takes the secrets out of one entry. `entry` has references, `values` their values by name.

    `left` lists the places with something that looks like a secret but cannot be stored: next to a variable, which
    would no longer be replaced; in a shell command; in a number; in the path of an address.
    """

    def __init__(self, server: str, entry: Mapping[str, Any], stored: Mapping[str, str] | None = None) -> None:
        """`stored`: existing secrets, whose values must not be overwritten."""
        self._stored_before = stored or {}
        self._server = _UNUSUAL.sub("_", server)[:_LONGEST_PART]
        self.values: dict[str, str] = {}
        self.left: list[str] = []
        self.entry = {key: self._of(key, value) for key, value in entry.items()}

    def _of(self, key: str, value: Any) -> Any:
        if key in ("env", "headers", "auth", "oauth") and isinstance(value, dict):
            return {name: self._referred(name, item, f"{key}.{name}") for name, item in value.items()}
        if key == "args" and isinstance(value, list):
            return [self._argument(str(value[at - 1]) if at else "", item, at) for at, item in enumerate(value)]
        if key == "url" and isinstance(value, str):
            return self._address(value)
        if key not in _NO_SECRETS:
            self._note_left(key, value, key)
        return value

    def _address(self, url: str) -> str:
        if has_random_part(url):
            self.left.append("url")
        return _PARAMETER.sub(self._parameter, _PASSWORD.sub(self._password, url))

    def _parameter(self, match: re.Match[str]) -> str:
        return f"{match.group(1)}={self._referred(match.group(1), match.group(2), 'url')}"

    def _password(self, match: re.Match[str]) -> str:
        if has_variable(match.group(2)):
            return match.group()
        return f"{match.group(1)}${{secret:{self._stored('password', match.group(2))}}}@"

    def _argument(self, before: str, value: Any, at: int) -> Any:
        place = f"args[{at}]"
        if not isinstance(value, str):
            return value
        option, equals, given = value.partition("=")
        if value.startswith("-") and equals:
            return f"{option}={self._referred(option.lstrip('-'), given, place)}"
        is_value = before.startswith("-") and "=" not in before and not value.startswith("-")
        name = before.lstrip("-") if is_value else "argument"
        if _VARIABLE.fullmatch(option) and equals and not is_named_secret(name, value):
            # The form used by `docker run -e TOKEN=...`.
            return f"{option}={self._referred(option, given, place)}"
        return self._referred(name, value, place)

    def _referred(self, name: str, value: Any, place: str) -> Any:
        """The value, or a reference to it if it is a secret."""
        if not isinstance(value, str) or has_variable(value):
            self._note_left(name, value, place)
            return value
        if not holds_secret(name, value):
            return value
        scheme = found.group() if (found := _SCHEME.match(value)) else ""
        return f"{scheme}${{secret:{self._stored(name, value[len(scheme) :])}}}"

    def _note_left(self, name: str, value: Any, place: str) -> None:
        if isinstance(value, dict | list):
            text = json.dumps(value)
        else:
            text = "" if value is None or isinstance(value, bool) else str(value)
        # Of a variable, only its default is written out.
        if holds_secret(name, _REPLACED.sub(lambda found: found.group(1).partition(":-")[2], text)):
            self.left.append(place)

    def _stored(self, name: str, value: str) -> str:
        base = wanted = f"{self._server}.{_UNUSUAL.sub('_', name)[:_LONGEST_PART]}"
        number = 1
        while self._stored_before.get(wanted, value) != value or self.values.setdefault(wanted, value) != value:
            number += 1
            wanted = f"{base}-{number}"
        return wanted
