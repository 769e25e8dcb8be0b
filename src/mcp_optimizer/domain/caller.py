"""The caller of a tool: its verified identity and permissions, whose results are kept and cached, what events record,
and how a server can reach the client.

Values and a protocol; knows no transport. `access` verifies and decides.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

# A verified caller's identity and the permissions that come with it.


class Risk(StrEnum):
    """The worst that a tool may do, in increasing order."""

    READ = "read"
    WRITE = "write"
    DESTRUCTIVE = "destructive"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def covers(self, other: Risk) -> bool:
        """Whether permission for this class includes the other."""
        return self.rank >= other.rank


_RANKS = {Risk.READ: 0, Risk.WRITE: 1, Risk.DESTRUCTIVE: 2}


class Role(StrEnum):
    """A role on the dashboard, in increasing order of permissions."""

    NONE = "none"
    SEE = "see"
    MANAGE = "manage"

    def covers(self, other: Role) -> bool:
        """Whether this role includes the permissions of the other."""
        order = list(Role)
        return order.index(self) >= order.index(other)


HOLDER = "holder"
"""What the id and the name of a person with keys begin with. Ids of tokens begin otherwise, and no issuer has this
name, so a key is never the person that a token speaks for.
"""


@dataclass(frozen=True)
class Principal:
    """One verified caller, or the one that stands for all unverified callers.

    Two callers with different `id`s share nothing. `name` is what rules match and people read; it starts with the
    source that vouches for it (`key:ci`, `holder:ada`, `corp:alice`), so no caller can take the name of a caller of
    another kind.
    """

    id: str
    name: str
    tenant: str = ""
    """The tenant of this caller, if a claim names one."""
    servers: frozenset[str] | None = None
    """The servers that it may use; None: all."""
    risk: Risk = Risk.DESTRUCTIVE
    """The highest risk class of tools that it may call."""
    profile: str | None = None
    """The profile of registered tools that it gets."""
    role: Role = Role.NONE
    scopes: frozenset[str] | None = None
    """The scopes of its token; None: it has no token, so no scope can be missing."""
    classes: frozenset[Risk] | None = None
    """The risk classes for which its token's scopes suffice; None: all. It sees tools of other classes, because a
    client can get a token with more scopes, but cannot call them.
    """
    calls_per_minute: int | None = None
    """Its own rate limit; None: that of the settings, 0: none."""
    groups: frozenset[str] = frozenset()
    """The groups and roles that a claim of its token names. Texts of the issuer: never patterns, never callers."""
    is_verified: bool = True
    key: str = ""
    """The name of the key with which it came, if it may have several."""
    claims: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What its verified token says, for entries that act with it. Two principals that differ only here are equal."""

    @property
    def name_in_audit(self) -> str:
        """Who it is and, if it has several keys, by which one. No holder contains a space."""
        return f"{self.name} by key {self.key}" if self.key else self.name

    @property
    def is_one_of_many(self) -> bool:
        """Whether there may be other callers with whom it must share resources."""
        return self.is_verified and self is not LOCAL_PRINCIPAL

    @cached_property
    def is_limited(self) -> bool:
        """Whether some servers or risk classes are closed to it, whatever the rules say."""
        return self.servers is not None or self.risk is not Risk.DESTRUCTIVE


LOCAL_PRINCIPAL = Principal("local", "local", role=Role.MANAGE)
"""The user who started the gateway and uses it on stdio, by the command line or as a library."""

ANYONE = Principal("anyone", "anyone", role=Role.SEE, is_verified=False)
"""Every caller that reaches an open gateway over HTTP. The gateway cannot tell them apart."""


# What a caller may do with a tool, and why. Frozen values; `access/policy` decides.


class Effect(StrEnum):
    """The outcome of a decision."""

    ALLOW = "allow"
    ASK = "ask"
    """Allowed each time a person agrees."""
    DENY = "deny"


@dataclass(frozen=True)
class Rule:
    """One rule of the settings file. An omitted field matches everything; patterns are globs."""

    effect: Effect
    server: str = "*"
    tool: str = "*"
    risk: Risk | None = None
    """The risk class of the tools that it applies to; None: every class."""
    caller: str = "*"
    """The names of the callers that it applies to."""
    reason: str = ""
    """Shown to the caller who is refused, or to the person who is asked."""
    group: str | None = None
    """It applies only to callers in a group with such a name; None: to all."""


class RiskClass(NamedTuple):
    """The risk class of a tool, and its source: "override", "annotations", "name" or "default".

    A named tuple, because it is a cache key for decisions and hashing a dataclass takes long.
    """

    risk: Risk
    source: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a caller may call a tool."""

    effect: Effect
    because: str
    """The source of the decision, for people: "rule 3 of the settings", "the key's servers", "no rule matches"."""
    risk: RiskClass
    reason: str = ""
    """The reason stated in the rule, if any."""

    @property
    def is_denied(self) -> bool:
        return self.effect is Effect.DENY


# Values of an entry that differ from caller to caller: `${caller.email}` and the like in its headers and variables.
# Only what a verified credential says of its holder is used, and only if it is harmless where it goes. No message
# repeats a value: it is personal.

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


class Clientele(Enum):
    """Which clients a gateway has."""

    ONE = "one"
    """One on stdio, which owns every server's session."""
    JOINED = "joined"
    """Several on stdio, which join and leave, each with a key that no other has."""
    MANY = "many"
    """Any number over HTTP, or a program."""


class ClientLink(Protocol):
    """The client behind a call, as far as a server may contact it during the call."""

    @property
    def key(self) -> str:
        """Identifies the client; two links to one client have the same key."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declared: sampling, elicitation, roots ..."""
        ...

    @property
    def is_modern(self) -> bool:
        """Whether it uses the modern protocol, in which a server asks through its result."""
        ...

    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages that the client wants; None if it did not say."""
        ...

    @property
    def lasting(self) -> ClientLink:
        """A link to the same client that outlives this call."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Passes a server's request to the client and returns its raw answer."""
        ...

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Passes a notification on. Never raises: a client that has left gets nothing."""
        ...

    async def release_streams(self) -> None:
        """Makes the client close its stream and ask for the rest later, because the server did so with the call's
        stream.
        """
        ...


class CallRecord(Protocol):
    """Collects facts about a call for the audit while it is made."""

    def about(self, server: str, tool: str, definition_hash: str = "", arguments: Any = None) -> None:
        """Records the tool that is used, and its arguments."""
        ...

    def decided(self, decision: Decision) -> None:
        """Records the decision of the rules."""
        ...

    def approved_by(self, who: str) -> None:
        """Records who was asked and agreed."""
        ...


class _NotRecorded:
    """For calls without a record."""

    def about(self, server: str, tool: str, definition_hash: str = "", arguments: Any = None) -> None:
        pass

    def decided(self, decision: Decision) -> None:
        pass

    def approved_by(self, who: str) -> None:
        pass


NOT_RECORDED: CallRecord = _NotRecorded()


class LatestRecord:
    """The record of the latest request that continues a call."""

    def __init__(self, record: CallRecord) -> None:
        self._now = record

    def follow(self, record: CallRecord) -> None:
        """Switches to the record of another request that continues the call."""
        self._now = record

    def about(self, server: str, tool: str, definition_hash: str = "", arguments: Any = None) -> None:
        self._now.about(server, tool, definition_hash, arguments)

    def decided(self, decision: Decision) -> None:
        self._now.decided(decision)

    def approved_by(self, who: str) -> None:
        self._now.approved_by(who)


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Caller(NamedTuple):
    """One user of the gateway. A caller with another `key` cannot read results that are kept for this one.

    A tuple, because every call makes three, and a dataclass takes four times as long.
    """

    client: str = ""
    """The client's own name for itself; only for display, not trusted."""
    key: str = "local"
    """Identifies the caller: the process on stdio; over HTTP a verified principal, or else a session."""
    link: ClientLink | None = None
    """The way back to the client, if there is one."""
    passed_on: Mapping[str, Any] = _NOTHING
    """The parts of the client's request that go to the server unchanged: `_meta`, `inputResponses`, `requestState`."""
    principal: Principal = LOCAL_PRINCIPAL
    """The verified identity."""
    narrowed: frozenset[str] | None = None
    """The only servers that this connection wants to use; None: all that the principal may use."""
    record: CallRecord = NOT_RECORDED
    """Where facts about the call are recorded."""
    is_continuing: bool = False
    """The request answers a parked call, and may do nothing else."""
    approval: Callable[[Caller], Awaitable[object]] | None = None
    """Asks a person through the caller's client before the call is made, and raises if they do not agree; for modern
    clients, whose answer comes with another request.
    """
    is_orphaned: bool = False
    """The request answers a call that waited at a gateway which no longer exists."""
    is_parked: bool = False
    """The call waits for answers by itself, whichever request of its client is open."""
    wants_tasks: bool = False
    """Its client asks for the result of a task itself, so a server may answer this call with one."""
    within: str = ""
    """Identifies the request that this call is a part of, if it is one of several. Its link can then be asked at any
    time, whichever request of its client is open.
    """

    def __repr__(self) -> str:
        # Without any part of the request.
        return f"Caller({self.client!r}, {self.key!r})"

    def noted(self, record: CallRecord, *, is_continuing: bool) -> Caller:
        """The same caller with another record."""
        return Caller(*self[:6], record, is_continuing, *self[8:])

    def through(self, link: ClientLink) -> Caller:
        """The same caller, reached through another link."""
        return Caller(self.client, self.key, link, *self[3:])

    @property
    def conversation(self) -> str:
        """Identifies the connection: one key may have several at a time."""
        return self.link.key if self.link is not None else self.key

    @property
    def reader(self) -> str:
        """Identifies the owner of kept results: the principal, across its sessions and gateways. An open gateway cannot
        tell callers apart, so there the id of a result, which cannot be guessed, is enough to read it.
        """
        return self.principal.id

    @property
    def is_distinct(self) -> bool:
        """Whether no other caller can have the same `key`. An unverified caller without a session has only a name."""
        return self.principal.is_verified or (self.link is not None and not self.link.is_modern)


LOCAL = Caller()
