"""Checks the claims of a token, reads its holder from them, and caches findings about tokens for a short time.

Called by `signed_tokens` and `introspection` once an issuer has vouched for the claims. The cache is bounded, and keyed
by a hash of the token, never by the token itself.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from mcp_optimizer.access.callers.keys import PROFILES, Rejected, ScopesMissing
from mcp_optimizer.domain.caller import Principal, Risk, Role, claim_at
from mcp_optimizer.domain.credentials import TokenIssuer, is_scope

_MOST = 4_096

Finding = TypeVar("Finding")


class Recent(Generic[Finding]):
    """A bounded cache of findings; each expires."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._found: OrderedDict[bytes, tuple[float, Finding]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: bytes) -> Finding | None:
        found = self._found.get(key)
        if found is None:
            return None
        until, finding = found
        if until <= self._clock():
            del self._found[key]
            return None
        return finding

    def put(self, key: bytes, finding: Finding, seconds: float) -> None:
        if seconds <= 0:
            return
        self._found.pop(key, None)
        self._found[key] = (self._clock() + seconds, finding)
        while len(self._found) > self._most:
            self._found.popitem(last=False)

    def forget(self, key: bytes) -> None:
        self._found.pop(key, None)


def hash_of(*parts: str) -> bytes:
    """One hash of several texts. Includes their lengths, so that different lists of texts have different hashes."""
    whole = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        whole.update(len(encoded).to_bytes(8, "big") + encoded)
    return whole.digest()


LEEWAY = 30
"""Seconds by which the issuer's clock may differ from ours."""

_LONGEST_NAME = 128
_LONGEST_ID = 500
_LATEST = 1e12
_MOST_SCOPES = 200
_MOST_SERVERS = 1_000
_MOST_GROUPS = 1_000
_PLAIN = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}"
"""Characters, besides letters, digits and _.-~, that an id contains unquoted. Not the space: it separates the parts."""


def check_audience(claims: Mapping[str, Any], audience: str) -> None:
    """Reject a token for another audience: one that its recipient passed on or lost must not be valid here."""
    said = claims.get("aud")
    if said != audience and not (isinstance(said, list) and audience in said):
        raise Rejected("The token is for another audience.")


def check_times(claims: Mapping[str, Any], now: float, *, needs_end: bool) -> float:
    """The time at which the token expires. Rejects a token that has expired or is not valid yet."""
    if "exp" not in claims and not needs_end:
        ends: float | None = math.inf
    else:
        ends = _moment(claims.get("exp"))
    if ends is None:
        raise Rejected("The token does not say when it expires.")
    if ends + LEEWAY <= now:
        raise Rejected("The token has expired.")
    begins = _moment(claims.get("nbf", 0))
    if begins is None or begins - LEEWAY > now:
        raise Rejected("The token is not valid yet.")
    return ends


def _moment(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _LATEST else None


def principal_of(claims: Mapping[str, Any], issuer: TokenIssuer) -> Principal:
    """The holder of this issuer's token; raises Rejected or ScopesMissing."""
    subject = _text(claims, "sub", _LONGEST_ID)
    name = _text(claims, issuer.name_claim, _LONGEST_NAME)
    tenant = _text(claims, issuer.tenant_claim, _LONGEST_NAME) if issuer.tenant_claim else ""
    scopes = scopes_of(claims)
    if not scopes.issuperset(issuer.required_scopes):
        raise ScopesMissing(issuer.required_scopes)
    whose = [issuer.issuer, subject, *([tenant] if issuer.tenant_claim else [])]
    profile = claims.get(issuer.profile_claim) if issuer.profile_claim else None
    groups = _groups(claims, issuer.groups_claim) if issuer.groups_claim else frozenset()
    return Principal(
        id="token:" + " ".join(quote(part, safe=_PLAIN) for part in whose),
        name=f"{issuer.name}:{name}",
        tenant=tenant,
        servers=_servers(claims.get(issuer.servers_claim)) if issuer.servers_claim else None,
        risk=Risk.DESTRUCTIVE,
        profile=profile if profile in PROFILES else None,
        role=_role(claims.get(issuer.role_claim)) if issuer.role_claim else Role.NONE,
        scopes=scopes,
        classes=frozenset(risk for risk in Risk if scopes.issuperset(issuer.risk_scopes.get(risk, ()))),
        groups=groups,
        claims=claims,
    )


def scopes_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """The token's scopes: from the standard claim `scope`, or `scp`, which some issuers use instead."""
    return frozenset(filter(is_scope, _words(claims.get("scope", claims.get("scp")), _MOST_SCOPES)))


def _servers(value: object) -> frozenset[str]:
    """The servers that a claim names: none if it is missing or has another type."""
    return frozenset(_words(value, _MOST_SERVERS))


def _role(value: object) -> Role:
    """The highest role that a claim names."""
    named = set(_words(value, _MOST_SCOPES))
    return next((role for role in reversed(Role) if role.value in named), Role.NONE)


def _groups(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    """The groups that a claim names. A claim that cannot be read as a whole rejects the token, because a rule may be
    about just the group that is left out.
    """
    value = claim_at(claims, claim)
    if value is None:
        elsewhere = claims.get("_claim_names")
        if isinstance(elsewhere, Mapping) and claim in elsewhere:
            raise Rejected(f"The token's issuer left out the claim {claim!r}: its holder is in too many groups.")
        return frozenset()
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list) or not all(isinstance(group, str) for group in value):
        raise Rejected(f"The token's claim {claim!r} is neither a list of texts nor one text.")
    if len(value) > _MOST_GROUPS:
        raise Rejected(f"The token's claim {claim!r} names {len(value):,} groups; at most {_MOST_GROUPS:,} are read.")
    if not all(0 < len(group) <= _LONGEST_NAME and group.isprintable() for group in value):
        raise Rejected(
            f"The token's claim {claim!r} has a group with an empty name, one of more than {_LONGEST_NAME} characters, "
            "or one with characters that cannot be printed."
        )
    return frozenset(value)


def _words(value: object, most: int) -> list[str]:
    """The words of a claim: a list of texts, or one text separated by spaces."""
    words = value.split() if isinstance(value, str) else value
    return [word for word in words[:most] if isinstance(word, str)] if isinstance(words, list) else []


def _text(claims: Mapping[str, Any], claim: str, longest: int) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not value:
        raise Rejected(f"The token lacks the claim {claim!r}.")
    if len(value) > longest or not value.isprintable():
        raise Rejected(f"The token's claim {claim!r} is too long, or has characters that cannot be printed.")
    return value
