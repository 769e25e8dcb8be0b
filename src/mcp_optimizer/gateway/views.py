"""What each caller sees of the catalog: the tools that it may call, and nothing else.

The one place that decides about tools, for find, list, profiles and calls alike. Views are snapshots themselves, made
on demand and kept for the callers that are active. A view of a caller with few servers costs what their tools cost,
whatever the size of the catalog: so callers can be the tenants of one index. Servers that do not exist for a caller
leave no trace in its view, neither in what names mean nor in how rare a word is. Called by the gateway; knows no
transport.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from threading import Lock

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.decisions import Decision, Effect
from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.errors import InvalidRequest, listed
from mcp_optimizer.policy.access import Policy
from mcp_optimizer.policy.rules import RuleBook
from mcp_optimizer.upstream.questions import ELICITATION, refusal

_KEPT = 256_000_000
"""Bytes, estimated, of the views that are kept: those of the callers that were active last."""

_EACH = 3_000
"""Bytes for a tool in the view of a caller that is confined to some servers: its words, weighed among those of these
servers, and its vector.
"""

_WHOLE = 9
"""Bytes for each tool of the catalog in the view of a caller that is not confined to some servers."""

_FEW = 500
"""Tools up to which a view is made at once, and not in a thread."""

_Key = tuple[Principal, frozenset[str] | None, bool | None]
"""Whose view it is, and of what: what can be called, if a person can be asked or cannot; None: all that exists."""

Keep = Callable[[CatalogTool], bool]


class Views:
    """The catalog as each caller sees it."""

    def __init__(self, policy: Policy, kept: int = _KEPT) -> None:
        self._policy = policy
        self._most = kept
        self._known: OrderedDict[_Key, tuple[Snapshot, RuleBook, Snapshot]] = OrderedDict()
        self._size = 0
        # Searches make views in threads.
        self._changing = Lock()

    def decide(self, caller: Caller, tool: CatalogTool) -> Decision:
        """Whether this caller may call a tool."""
        record = tool.record
        return self._policy.decide(caller.principal, record.server, record.definition.name, record.hints)

    def permits_server(self, caller: Caller, server: str) -> bool:
        """Whether a server exists for this caller at all."""
        servers = caller.principal.servers
        return (servers is None or server in servers) and (caller.narrowed is None or server in caller.narrowed)

    def permits_reading(self, caller: Caller, server: str) -> bool:
        """Whether a caller may read a server's resources and use its prompts."""
        return self.permits_server(caller, server) and self._policy.decide_server(caller.principal, server)

    def of(self, snapshot: Snapshot, caller: Caller) -> Snapshot:
        """What the caller may call. May take a while in a large catalog; see `ready`."""
        if self.sees_all(caller):
            return snapshot
        is_asked = can_ask(caller)
        return self._kept(snapshot, caller, is_asked, lambda tool: self._is_callable(caller, tool, is_asked=is_asked))

    def permitted(self, snapshot: Snapshot, caller: Caller) -> Snapshot:
        """With everything of the servers that exist for the caller, whether or not it may call it; for explanations."""
        if caller.principal.servers is None and caller.narrowed is None:
            return snapshot
        return self._kept(snapshot, caller, None, lambda tool: self.permits_server(caller, tool.server))

    async def ready(self, snapshot: Snapshot, caller: Caller) -> Snapshot:
        """The same, without keeping other callers waiting."""
        if self.sees_all(caller):
            return snapshot
        if len(snapshot.tools) <= _FEW:
            return self.of(snapshot, caller)
        return await asyncio.to_thread(self.of, snapshot, caller)

    def check_narrowing(self, snapshot: Snapshot, caller: Caller) -> None:
        """A connection can be narrowed only to servers that exist for its caller."""
        if caller.narrowed is None:
            return
        permitted = caller.principal.servers
        there_for_it = [name for name in caller.narrowed if permitted is None or name in permitted]
        if unknown := sorted(caller.narrowed.difference(name for name in there_for_it if name in snapshot.states)):
            known = [name for name in snapshot.states if permitted is None or name in permitted]
            missing, there = listed(unknown, 5), listed(known) or "none"
            raise InvalidRequest(f"The address asks for servers that are not there: {missing}. Servers: {there}.")

    def sees_all(self, caller: Caller) -> bool:
        """Whether the snapshot itself is what this caller may call."""
        return caller.narrowed is None and self._policy.is_open_for(caller.principal)

    def _kept(self, snapshot: Snapshot, caller: Caller, kind: bool | None, keep: Keep) -> Snapshot:
        """The view of this kind, made if it is not there; not while others wait for theirs."""
        key, rulebook = (caller.principal, caller.narrowed, kind), self._policy.rulebook
        with self._changing:
            known = self._known.get(key)
        if known is None or known[0] is not snapshot or known[1] is not rulebook:
            known = (snapshot, rulebook, _made(snapshot, caller, keep))
        with self._changing:
            if (replaced := self._known.pop(key, None)) is not None:
                self._size -= _weight(*replaced)
            self._known[key] = known
            self._size += _weight(*known)
            while self._size > self._most and len(self._known) > 1:
                self._size -= _weight(*self._known.popitem(last=False)[1])
        return known[2]

    def _is_callable(self, caller: Caller, tool: CatalogTool, *, is_asked: bool) -> bool:
        if not self.permits_server(caller, tool.server):
            return False
        effect = self.decide(caller, tool).effect
        return effect is Effect.ALLOW or (effect is Effect.ASK and is_asked)


def _made(snapshot: Snapshot, caller: Caller, keep: Keep) -> Snapshot:
    given = [servers for servers in (caller.principal.servers, caller.narrowed) if servers is not None]
    # An address that leaves out servers of the caller does not give their names to others.
    seen = snapshot.confined(frozenset.intersection(*given), caller.principal.servers) if given else snapshot
    tools = tuple(tool if tool is not None and keep(tool) else None for tool in seen.tools)
    return replace(
        seen,
        tools=tools,
        baseline_tokens=sum(tool.tokens for tool in tools if tool is not None),
        table=seen.names,
        mask=bytes(tool is not None for tool in tools),
    )


def _weight(snapshot: Snapshot, _rulebook: RuleBook, view: Snapshot) -> int:
    return (_WHOLE if view.index is snapshot.index else _EACH) * len(view.tools)


def can_ask(caller: Caller) -> bool:
    """Whether a person can be asked in the middle of this caller's calls."""
    link = caller.link
    return link is not None and refusal(link.capabilities, ELICITATION, {"mode": "form"}) is None
