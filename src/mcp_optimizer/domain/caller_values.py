"""Values of an entry that differ from caller to caller: `${caller.email}` and the like in its headers and variables.

Only what a verified credential says of its holder is used, and only if it is harmless where it goes. No message repeats
a value: it is personal. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_optimizer.domain.principal import Principal

LONGEST_VALUE: Final = 1_000
"""Maximum characters of one value of a caller."""
_LONGEST_CLAIM_NAME: Final = 200
_CLAIM: Final = "claim."
_ONLY_WHOLE: Final = ("name", "id")
_FIELDS: Final = ("email", *_ONLY_WHOLE)
_ADDRESS: Final = re.compile(r"[^@\s]+@[^@\s]+")
_HARMLESS_INSIDE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~@+-]*")
"""What may stand inside a longer text: nothing that separates parts of a header, an address, a path or a command."""


class CallerValueMissing(Exception):
    """A value of the caller that an entry needs is missing, or cannot be used where the entry puts it."""


@dataclass(frozen=True)
class CallerField:
    """One `${caller.…}`: `email`, `name`, `id`, or `claim.` with the name of a claim."""

    name: str


@dataclass(frozen=True)
class CallerText:
    """The value of one header or variable, with the values of the caller in it."""

    kind: str
    """`headers` or `env`."""
    name: str
    pieces: tuple[str | CallerField, ...] = field(repr=False)

    def of(self, caller: Principal) -> str:
        """The text for this caller; raises CallerValueMissing."""
        is_whole = len(self.pieces) == 1
        return "".join(
            piece if isinstance(piece, str) else self._checked(piece, caller, is_whole=is_whole)
            for piece in self.pieces
        )

    def _checked(self, wanted: CallerField, caller: Principal, *, is_whole: bool) -> str:
        value, what = _value(wanted, caller)
        where = f"its {'header' if self.kind == 'headers' else 'variable'} {self.name!r}"
        if value is None:
            raise CallerValueMissing(f"{where} needs {what}")
        if not value or len(value) > LONGEST_VALUE:
            size = "empty" if not value else f"longer than {LONGEST_VALUE:,} characters"
            raise CallerValueMissing(f"{where} needs {what}, which is {size}")
        is_plain = value.isprintable() and value == value.strip()
        if not is_plain or (self.kind == "headers" and not value.isascii()):
            raise CallerValueMissing(f"{where} cannot have {what}: it has characters that are not allowed there")
        if not is_whole and not _HARMLESS_INSIDE.fullmatch(value):
            raise CallerValueMissing(
                f"{where} cannot have {what} inside a longer text: it has characters with a meaning of their own"
            )
        return value


def problem_of(name: str, *, is_whole: bool) -> str:
    """What is wrong with a `${caller.NAME}` of an entry, whoever calls; empty if nothing is."""
    if name in _ONLY_WHOLE and not is_whole:
        return "has characters with a meaning of their own, so it must be the whole value"
    if name in _FIELDS:
        return ""
    claim = name.removeprefix(_CLAIM) if name.startswith(_CLAIM) else ""
    if 0 < len(claim) <= _LONGEST_CLAIM_NAME:
        return ""
    return "is not known; use ${caller.email}, ${caller.name}, ${caller.id} or ${caller.claim.NAME}"


def claim_at(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of a name: the one that is called so, dots included, or else one inside others, as in
    `realm_access.roles`; None if there is none.
    """
    if name in claims:
        return claims[name]
    inside: Any = claims
    for part in name.split("."):
        inside = inside.get(part) if isinstance(inside, Mapping) else None
    return inside


def _value(wanted: CallerField, caller: Principal) -> tuple[str | None, str]:
    """The value, None if there is none, and what was looked for, for messages."""
    if wanted.name == "name":
        return caller.name, "the caller's name"
    if wanted.name == "id":
        return caller.id, "the caller's id"
    if wanted.name == "email":
        return _email(caller)
    claim = wanted.name.removeprefix(_CLAIM)
    what = f"the claim {claim!r} of the caller's token"
    if not caller.claims:
        return None, f"{what}, and this caller has none"
    found = claim_at(caller.claims, claim)
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    if found is None:
        return None, f"{what}, which is missing"
    return (found, what) if isinstance(found, str) else (None, f"{what} as a text, and it is none")


def _email(caller: Principal) -> tuple[str | None, str]:
    what = "the claim 'email' of the caller's token"
    if not caller.claims:
        return None, f"{what}, and this caller has none"
    found = caller.claims.get("email")
    if found is None:
        return None, f"{what}, which is missing"
    # Providers write it as text, too, and in other letter case. What is neither missing nor true is not believed.
    if str(caller.claims.get("email_verified", True)).lower() != "true":
        return None, f"{what}, which its issuer has not verified"
    is_address = isinstance(found, str) and _ADDRESS.fullmatch(found[: LONGEST_VALUE + 1])
    return (found, what) if is_address else (None, f"{what}, which is not an address")
