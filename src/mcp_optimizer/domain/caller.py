"""The caller of a tool: whose results are kept and cached, what events record, and how a server can reach the client.

Values and a protocol; knows no transport.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from mcp_optimizer.domain.decisions import Decision
from mcp_optimizer.domain.principal import LOCAL_PRINCIPAL, Principal


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
