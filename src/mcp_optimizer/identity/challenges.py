"""Reads `WWW-Authenticate` headers: what a server that refused a request requires. Pure; trusts no text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from mcp_optimizer.runtime.patterns import regex

_LONGEST = 8_000
_PARAMETER = regex(r'([A-Za-z0-9_\-]{1,40})\s{0,4}=\s{0,4}(?:"((?:[^"\\]|\\.){0,4000})"|([^\s,"]{1,4000}))')
_BEARER = regex(r"(?:^|[\s,])bearer(?=\s|,|$)", re.I)
_ANOTHER = regex(r",\s{0,4}(?:basic|digest|negotiate|dpop|ntlm|mutual)(?=\s)", re.I)
_SCOPE = regex(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
_MOST_SCOPES = 100


@dataclass(frozen=True)
class Challenge:
    """The bearer challenge in a refusal."""

    error: str = ""
    scopes: tuple[str, ...] | None = None
    """The scopes that the refused request needs; None if the server does not say."""
    resource_metadata: str = ""

    @property
    def wants_more_scopes(self) -> bool:
        return self.error == "insufficient_scope"


def challenge_in(header: str) -> Challenge | None:
    """The bearer challenge in a header, which may contain challenges of several schemes; None if there is none."""
    header = header[:_LONGEST]
    found = _BEARER.search(header)
    if found is None:
        return None
    rest = header[found.end() :]
    if another := _ANOTHER.search(rest):
        rest = rest[: another.start()]
    given: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(rest):
        given.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted else plain)
    scope = given.get("scope")
    return Challenge(
        error=given.get("error", ""),
        scopes=None if scope is None else scopes_of(scope),
        resource_metadata=given.get("resource_metadata", ""),
    )


def scopes_of(text: str | None) -> tuple[str, ...]:
    """The scopes in a space-separated text, without duplicates."""
    found = dict.fromkeys(scope for scope in (text or "").split(" ") if _SCOPE.fullmatch(scope))
    return tuple(found)[:_MOST_SCOPES]


def with_more(scopes: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """The scopes of both, in order and without duplicates. If there are too many, half of them and the new ones."""
    new = tuple(dict.fromkeys(more))
    both = tuple(dict.fromkeys([*scopes, *new]))
    if len(both) <= _MOST_SCOPES:
        return both
    return tuple(dict.fromkeys([*both[: _MOST_SCOPES // 2], *new]))[:_MOST_SCOPES]
