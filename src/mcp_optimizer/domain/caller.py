"""Who makes a call: whose results are kept and cached, what events record, and how a server can reach the client.

Values and a protocol; knows no transport.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from mcp_optimizer.domain.decisions import Decision
from mcp_optimizer.domain.principal import LOCAL_PRINCIPAL, Principal


class ClientLink(Protocol):
    """The client behind a call, as far as a server may contact it during the call."""

    @property
    def key(self) -> str:
        """Identifies the client; two links of one client have the same key."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities the client declared: sampling, elicitation, roots ..."""
        ...

    @property
    def is_modern(self) -> bool:
        """Whether it speaks the modern protocol era, in which a server asks through its result."""
        ...

    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages that it wants; None if it did not say."""
        ...

    @property
    def lasting(self) -> ClientLink:
        """A link to the same client that outlives this call."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Pass a server's request to the client and return its raw answer."""
        ...

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on. Never raises: a client that left gets nothing."""
        ...

    async def release_streams(self) -> None:
        """The server closed the call's stream and will be asked for the rest; ask the client to do the same."""
        ...


class CallRecord(Protocol):
    """What is noted about a call while it is made, for the audit."""

    def about(self, server: str, tool: str, definition_hash: str = "", arguments: Any = None) -> None:
        """What is used, and with what."""
        ...

    def decided(self, decision: Decision) -> None:
        """What the rules say."""
        ...

    def approved_by(self, who: str) -> None:
        """Who was asked, and said yes."""
        ...


class _NotRecorded:
    """For calls that nobody keeps a record of."""

    def about(self, server: str, tool: str, definition_hash: str = "", arguments: Any = None) -> None:
        pass

    def decided(self, decision: Decision) -> None:
        pass

    def approved_by(self, who: str) -> None:
        pass


NOT_RECORDED: CallRecord = _NotRecorded()


class LatestRecord:
    """The record of whichever request a call is continued by."""

    def __init__(self, record: CallRecord) -> None:
        self._now = record

    def follow(self, record: CallRecord) -> None:
        """Another request continues the call."""
        self._now = record

    def about(self, server: str, tool: str, definition_hash: str = "", arguments: Any = None) -> None:
        self._now.about(server, tool, definition_hash, arguments)

    def decided(self, decision: Decision) -> None:
        self._now.decided(decision)

    def approved_by(self, who: str) -> None:
        self._now.approved_by(who)


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Caller(NamedTuple):
    """One user of the gateway. A caller with another `key` cannot read what is kept for this one.

    A tuple, because every call makes three, and a dataclass takes four times as long.
    """

    client: str = ""
    """The client's own name for itself; only for display, not trusted."""
    key: str = "local"
    """Identifies the caller: the process on stdio, a verified principal or else a session over HTTP."""
    link: ClientLink | None = None
    """The way back to the client, if there is one."""
    passed_on: Mapping[str, Any] = _NOTHING
    """The parts of the client's request that go to the server unchanged: `_meta`, `inputResponses`, `requestState`."""
    principal: Principal = LOCAL_PRINCIPAL
    """Who was verified."""
    narrowed: frozenset[str] | None = None
    """The only servers that this connection wants to use; None: all that the principal may."""
    record: CallRecord = NOT_RECORDED
    """Where the call is noted."""
    is_continuing: bool = False
    """The request answers a parked call, and may do nothing else."""
    approval: Callable[[Caller], Awaitable[None]] | None = None
    """Asks a person through the caller's client, before the call is made, and raises if they do not agree; for modern
    clients, whose answer comes with another request.
    """
    is_orphaned: bool = False
    """The request answers a call that waited at a gateway which is gone."""
    is_parked: bool = False
    """The call waits for answers by itself, whichever request of its client is open."""

    def __repr__(self) -> str:
        # Nothing of what was said in the request.
        return f"Caller({self.client!r}, {self.key!r})"

    def noted(self, record: CallRecord, *, is_continuing: bool) -> Caller:
        """The same caller, whose call is noted there."""
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
        """Whose kept results it reads: those of its principal, in whatever session and at whatever gateway. At an open
        gateway nobody is told from another, and whoever knows the id of a result, which cannot be guessed, reads it.
        """
        return self.principal.id

    @property
    def is_distinct(self) -> bool:
        """Whether nobody else can have the same `key`. Somebody unverified without a session has only a name."""
        return self.principal.is_verified or (self.link is not None and not self.link.is_modern)


LOCAL = Caller()
