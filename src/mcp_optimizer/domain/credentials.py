"""The stored form of an API key and of a dashboard sign-in, and the settings for one issuer of tokens. Frozen values;
this module verifies nothing.

A key has its permissions, its lifetime, and a hash of its secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcp_optimizer.domain.caller import HOLDER, Principal, Risk, Role

# The settings for one issuer of tokens.

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Only algorithms with which the key that verifies tokens cannot make them."""

_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
_RESERVED = ("key", HOLDER, "local", "anyone")


class DashboardLogin(BaseModel):
    """How people sign in to the dashboard at an issuer, with OpenID Connect."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    client_id: str = Field(min_length=1, max_length=1_000)
    """The gateway as the issuer knows it; ID tokens are for it."""
    client_secret: str = Field(default="", repr=False)
    title: str = Field(default="", max_length=60)
    """What people call the issuer; by default its name."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """What is asked for, besides the scopes that every token needs."""
    hours: float = Field(default=8.0, gt=0, le=12)
    """How long a sign-in lasts: until then, nobody asks the issuer about the person again."""

    @field_validator("scopes")
    @classmethod
    def _are_scopes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _checked(value)

    @field_validator("title")
    @classmethod
    def _is_printable(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("the title of a button has only characters that can be printed")
        return value


class TokenIssuer(BaseModel):
    """Whose tokens are accepted, how they are verified, and which claims say what."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str
    """What its callers' names begin with."""
    issuer: str
    audience: str = ""
    """What tokens are for; by default the address of `/mcp`."""
    jwks_url: str = ""
    """Where its keys are; by default what its metadata say."""
    introspection_url: str = ""
    """Who is asked about its tokens, instead of verifying a signature."""
    client_id: str = ""
    client_secret: str = Field(default="", repr=False)
    algorithms: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    required_scopes: tuple[str, ...] = ()
    """Every token must have them."""
    risk_scopes: dict[Risk, tuple[str, ...]] = Field(default_factory=dict)
    """A call of a tool of a class needs a token with these."""
    name_claim: str = "sub"
    tenant_claim: str = ""
    servers_claim: str = ""
    profile_claim: str = ""
    role_claim: str = ""
    groups_claim: str = ""
    """What rules match as `group`."""
    dashboard_login: DashboardLogin | None = None
    """How people sign in to the dashboard there; None: they cannot."""

    @field_validator("name")
    @classmethod
    def _label(cls, value: str) -> str:
        if not _LABEL.fullmatch(value) or value in _RESERVED:
            raise ValueError(
                f"the name of an issuer has lower-case letters, digits and -, and is none of {', '.join(_RESERVED)}"
            )
        return value

    @field_validator("issuer")
    @classmethod
    def _plain_address(cls, value: str) -> str:
        if not value.startswith(("https://", "http://")) or any(mark in value for mark in "?# ") or len(value) > 2_000:
            raise ValueError("an issuer is an https:// address without ? and #, written exactly as in its tokens")
        return value

    @field_validator("algorithms")
    @classmethod
    def _some(cls, value: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
        if not value:
            raise ValueError("name at least one algorithm, such as RS256")
        return value

    @field_validator("required_scopes")
    @classmethod
    def _are_scopes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _checked(value)

    @field_validator("risk_scopes")
    @classmethod
    def _are_scopes_too(cls, value: dict[Risk, tuple[str, ...]]) -> dict[Risk, tuple[str, ...]]:
        for scopes in value.values():
            _checked(scopes)
        return value

    @property
    def scopes(self) -> tuple[str, ...]:
        """Every scope that has a meaning for the gateway, in the order of the settings."""
        named = [*self.required_scopes, *(scope for risk in Risk for scope in self.risk_scopes.get(risk, ()))]
        return tuple(dict.fromkeys(named))


def _checked(scopes: tuple[str, ...]) -> tuple[str, ...]:
    if bad := next((scope for scope in scopes if not is_scope(scope)), None):
        raise ValueError(f"{bad!r} cannot be a scope: it has only visible ASCII characters, without quotes and \\")
    return scopes


def is_scope(text: str) -> bool:
    """Whether this is one scope, as RFC 6749 spells them. Such a text is safe inside the quotes of a header."""
    return _SCOPE.fullmatch(text) is not None


def distinct(issuers: Sequence[TokenIssuer]) -> list[TokenIssuer]:
    """The same issuers; raises if a token could belong to more than one of them."""
    for what, values in (("name", [one.name for one in issuers]), ("issuer", [one.issuer for one in issuers])):
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise ValueError(f"two issuers have the {what} {twice!r}")
    if sum(bool(one.introspection_url) for one in issuers) > 1:
        raise ValueError(
            "only one issuer can have an introspection_url: a token that is not a JWT does not name its issuer, and "
            "must not be sent to another one"
        )
    return list(issuers)


@dataclass(frozen=True)
class ApiKey:
    """One key. Times are in milliseconds since 1970."""

    id: str
    name: str
    digest: bytes = field(repr=False)
    """SHA-256 of its secret."""
    created_at_ms: int
    servers: frozenset[str] | None = None
    """The servers that it gives access to; None: all."""
    risk: Risk = Risk.READ
    role: Role = Role.NONE
    profile: str | None = None
    calls_per_minute: int | None = None
    expires_at_ms: int | None = None
    """None: never."""
    used_at_ms: int | None = None
    revoked_at_ms: int | None = None
    holder: str = ""
    """The person whose keys are one caller; empty: the key is a caller of its own."""
    stands_for: str = ""
    """The id of the first key that this one replaces, under which everything of its caller is kept."""
    replaced_at_ms: int | None = None
    """When another key was made in its place; it stays valid until it expires."""

    def is_living(self, now_ms: int) -> bool:
        return self.state(now_ms) == "in use"

    def state(self, now_ms: int) -> str:
        if self.revoked_at_ms is not None:
            return "revoked"
        return "expired" if self.expires_at_ms is not None and self.expires_at_ms <= now_ms else "in use"

    @cached_property
    def principal(self) -> Principal:
        """The principal of the key. Always the same object, because every call needs it."""
        return Principal(
            id=f"{HOLDER}:{self.holder}" if self.holder else f"key:{self.stands_for or self.id}",
            name=f"{HOLDER}:{self.holder}" if self.holder else f"key:{self.name}",
            key=self.name if self.holder else "",
            servers=self.servers,
            risk=self.risk,
            profile=self.profile,
            role=self.role,
            calls_per_minute=self.calls_per_minute,
        )


class SignInKind(StrEnum):
    """What was used to sign in."""

    TICKET = "ticket"
    """Not signed in yet: a ticket that one browser may use once to sign in."""
    OWNER = "owner"
    """A ticket of the user who runs the gateway."""
    DASHBOARD = "dashboard"
    """The dashboard's token."""
    KEY = "key"
    PERSON = "person"
    """A token issuer, at which the person signed in."""
    USED = "used"
    """No sign-in: the mark that an answer of a token issuer was used."""


@dataclass(frozen=True)
class SignIn:
    """One sign-in, or a ticket for one."""

    kind: SignInKind
    until: float
    """Seconds since 1970."""
    bound_to: str = ""
    """For a key, its id; for a person, what the issuer said; for the dashboard's token, a digest that differs for each
    sign-in; for a ticket, which of the two it stands for, or empty for the owner.
    """
