"""Secrets that are written out in an entry: which there are, and the entry with references to them instead.

Pure; called by `importing`. Goes by names (`API_TOKEN`, `Authorization`, `--api-key`) and by known forms of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcp_optimizer.clients.spellings import has_variable
from mcp_optimizer.upstream.redaction import is_named_secret

_SCHEME = re.compile(r"(?:Bearer|Basic|Token|ApiKey|Digest)\s+", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<=[?&])([^=&#]+)=([^&#]+)")
_UNUSUAL = re.compile(r"[^\w.-]+")
_LONGEST_PART = 90


class SecretsOfEntry:
    """Takes the secrets out of one entry. `entry` has references, `values` what they stand for, by name."""

    def __init__(self, server: str, entry: Mapping[str, Any], stored: Mapping[str, str] | None = None) -> None:
        """`stored`: secrets that exist, none of which is replaced by another value."""
        self._stored_before = stored or {}
        self._server = _UNUSUAL.sub("_", server)[:_LONGEST_PART]
        self.values: dict[str, str] = {}
        self.entry = {key: self._of(key, value) for key, value in entry.items()}

    def _of(self, key: str, value: Any) -> Any:
        if key in ("env", "headers", "auth", "oauth") and isinstance(value, dict):
            return {name: self._referred(name, item) for name, item in value.items()}
        if key == "args" and isinstance(value, list):
            return [self._argument(str(value[at - 1]) if at else "", item) for at, item in enumerate(value)]
        if key == "url" and isinstance(value, str):
            return _PARAMETER.sub(self._parameter, value)
        return value

    def _parameter(self, match: re.Match[str]) -> str:
        return f"{match.group(1)}={self._referred(match.group(1), match.group(2))}"

    def _argument(self, before: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        option, equals, given = value.partition("=")
        if value.startswith("-") and equals:
            return f"{option}={self._referred(option.lstrip('-'), given)}"
        is_value = before.startswith("-") and "=" not in before and not value.startswith("-")
        return self._referred(before.lstrip("-") if is_value else "argument", value)

    def _referred(self, name: str, value: Any) -> Any:
        """The value, or a reference to it if it is a secret."""
        if not isinstance(value, str) or has_variable(value) or not is_named_secret(name, value):
            return value
        scheme = found.group() if (found := _SCHEME.match(value)) else ""
        return f"{scheme}${{secret:{self._stored(name, value[len(scheme) :])}}}"

    def _stored(self, name: str, value: str) -> str:
        base = wanted = f"{self._server}.{_UNUSUAL.sub('_', name)[:_LONGEST_PART]}"
        number = 1
        while self._stored_before.get(wanted, value) != value or self.values.setdefault(wanted, value) != value:
            number += 1
            wanted = f"{base}-{number}"
        return wanted
