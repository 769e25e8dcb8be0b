"""Decides which tools a caller sees, and whether a call may be made now. Called by the gateway for find, list and call.

Views are snapshots of the catalog without the tools that a caller may not call, made on demand and kept for active
callers. A call must pass the caller's rate, the decision and, where a rule says `ask`, a person's consent. A person is
asked through the caller's client, never through the model.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Protocol

from mcp_optimizer.access.policy.approvals import (
    MOST_ARGUMENTS,
    MOST_ARGUMENTS_OF_MANY,
    Approvals,
    Approved,
    Consent,
    can_all_be_shown,
    can_be_shown,
    consent_in,
    question,
)
from mcp_optimizer.access.policy.policy import LACKING_SCOPES, Policy, Rates, RuleBook, call_refusal
from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.snapshot import Entries
from mcp_optimizer.domain.caller import Caller, Decision, Effect, Principal, Risk
from mcp_optimizer.errors import InvalidRequest, OptimizerError, RequestError, listed, quoted
from mcp_optimizer.gateway import resolving
from mcp_optimizer.runtime.terminal_text import printable
from mcp_optimizer.upstream.questions import ELICITATION, OwnQuestion, refusal
from mcp_optimizer.upstream.request_errors import RpcError

_KEPT = 256_000_000
"""Estimated bytes of views to keep; those of the most recently active callers stay."""

_EACH = 600
"""Bytes per tool in the view of a caller confined to some servers: mostly its names."""

_EACH_OF_MANY = 3_000
"""The same for a caller of so many tools that they have an index of their own: with its words, weighted among those of
these servers, and its vector.
"""

_WHOLE = 9
"""Bytes per tool of the catalog in the view of a caller that is not confined to some servers."""

_FEW = 500
"""Up to this many tools, a view is made on the event loop and not in a thread."""

_Key = tuple[Principal, frozenset[str] | None, bool | None]
"""Principal, narrowing, and kind of view: callable with (True) or without (False) a person to ask, or all (None)."""

Keep = Callable[[CatalogTool], bool]


class OwnServersViews(Protocol):
    """Makes the snapshots that have callers' own servers, where entries act as each caller."""

    @property
    def entries(self) -> Entries: ...

    def of(self, snapshot: Snapshot, principal: Principal) -> Snapshot: ...


class Views:
    """The catalog as each caller sees it."""

    def __init__(self, policy: Policy, kept: int = _KEPT, own: OwnServersViews | None = None) -> None:
        self._policy = policy
        self._own = own
        self._most = kept
        self._known: OrderedDict[_Key, tuple[Snapshot, RuleBook, Snapshot]] = OrderedDict()
        self._size = 0
        # Searches make views in threads.
        self._changing = Lock()

    def own(self, snapshot: Snapshot, caller: Caller) -> Snapshot:
        """The snapshot with the tools and states of the caller's own servers, whatever the caller may call."""
        own = self._own
        return snapshot if own is None or not own.entries.by_caller else own.of(snapshot, caller.principal)

    def decide(self, caller: Caller, tool: CatalogTool) -> Decision:
        """Whether this caller may call a tool."""
        record = tool.record
        return self._policy.decide(caller.principal, record.server, record.definition.name, record.hints)

    def permits_skill(self, caller: Caller, server: str, name: str) -> bool:
        """Whether a caller may read a skill that its server does not list; a rule that asks a person refuses here."""
        decided = self._policy.decide(caller.principal, server, name, {"readOnlyHint": True})
        return self.permits_server(caller, server) and decided.effect is Effect.ALLOW

    def permits_server(self, caller: Caller, server: str) -> bool:
        """Whether a server exists for this caller at all."""
        servers = caller.principal.servers
        return (servers is None or server in servers) and (caller.narrowed is None or server in caller.narrowed)

    def permits_reading(self, caller: Caller, server: str) -> bool:
        """Whether a caller may read a server's resources and use its prompts."""
        return self.permits_server(caller, server) and self._policy.decide_server(caller.principal, server)

    def of(self, snapshot: Snapshot, caller: Caller) -> Snapshot:
        """The snapshot of what the caller may call. May be slow for a large catalog; see `ready`."""
        snapshot = self.own(snapshot, caller)
        if self.sees_all(caller):
            return snapshot
        is_asked = can_ask(caller)
        return self._kept(snapshot, caller, is_asked, lambda tool: self._is_callable(caller, tool, is_asked=is_asked))

    def permitted(self, snapshot: Snapshot, caller: Caller) -> Snapshot:
        """All tools of the servers that exist for the caller, whether or not it may call them; for explanations."""
        snapshot = self.own(snapshot, caller)
        if caller.principal.servers is None and caller.narrowed is None:
            return snapshot
        return self._kept(snapshot, caller, None, lambda tool: self.permits_server(caller, tool.server))

    async def ready(self, snapshot: Snapshot, caller: Caller) -> Snapshot:
        """Same as `of`, without making other callers wait."""
        if self.sees_all(caller) and (self._own is None or not self._own.entries.by_caller):
            return snapshot
        if len(snapshot.tools) <= _FEW:
            return self.of(snapshot, caller)
        return await asyncio.to_thread(self.of, snapshot, caller)

    def check_narrowing(self, snapshot: Snapshot, caller: Caller) -> None:
        """Raises InvalidRequest if a connection is narrowed to servers that do not exist for its caller."""
        if caller.narrowed is None:
            return
        permitted = caller.principal.servers
        there_for_it = [name for name in caller.narrowed if permitted is None or name in permitted]
        if unknown := sorted(caller.narrowed.difference(name for name in there_for_it if name in snapshot.states)):
            known = [name for name in snapshot.states if permitted is None or name in permitted]
            missing, there = listed(unknown, 5), listed(known) or "none"
            raise InvalidRequest(f"The address asks for servers that are not there: {missing}. Servers: {there}.")

    def sees_all(self, caller: Caller) -> bool:
        """Whether this caller may call every tool, so that the snapshot itself is its view."""
        return caller.narrowed is None and self._policy.is_open_for(caller.principal)

    def _kept(self, snapshot: Snapshot, caller: Caller, kind: bool | None, keep: Keep) -> Snapshot:
        """The cached view of this kind, made if missing, without blocking callers that wait for theirs."""
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
    # Leaving out a caller's servers in the address does not give their names to other servers.
    seen = snapshot.confined(frozenset.intersection(*given), caller.principal.servers) if given else snapshot
    tools = tuple(tool if tool is not None and keep(tool) else None for tool in seen.tools)
    return replace(
        seen,
        tools=tools,
        baseline_tokens=sum(tool.listed_tokens for tool in tools if tool is not None),
        table=seen.names,
        mask=bytes(tool is not None for tool in tools),
    )


def _weight(snapshot: Snapshot, _rulebook: RuleBook, view: Snapshot) -> int:
    if view.index is snapshot.index:
        return _WHOLE * len(view.tools)
    return (_EACH if view.index.shares_words else _EACH_OF_MANY) * len(view.tools)


def can_ask(caller: Caller) -> bool:
    """Whether a person can be asked during this caller's calls."""
    link = caller.link
    return link is not None and refusal(link.capabilities, ELICITATION, {"mode": "form"}) is None


@dataclass(frozen=True)
class Agreed:
    """What a person has agreed to, and who it was."""

    to: Approved
    by: str


_PATIENCE = 300.0
"""Seconds a person has to answer a legacy client's question."""


class Permissions:
    """Admits calls, or raises the error that a model should read."""

    def __init__(
        self,
        views: Views,
        rates: Rates | None = None,
        approvals: Approvals | None = None,
        patience: float = _PATIENCE,
    ) -> None:
        self.views = views
        self._rates = rates or Rates()
        self._approvals = approvals or Approvals()
        self._patience = patience

    def use_rate(self, per_minute: int) -> None:
        """Set the rate limit of callers that have none of their own."""
        self._rates.use(per_minute)

    def server_gone(self, server: str) -> None:
        """Forget what a person agreed to about a server that was removed."""
        self._approvals.forget_server(server)

    def take_turn(self, caller: Caller, calls: int = 1) -> None:
        """Count a request of this caller as `calls` calls; raises TooManyCalls."""
        self._rates.check(caller.principal, calls)

    async def resolve(self, snapshot: Snapshot, tool_name: str, server_name: str | None, caller: Caller) -> CatalogTool:
        """The one tool that a name means for a caller; else raises why there is none or why it may not be called."""
        view = await self.views.ready(snapshot, caller)
        try:
            return resolving.meant(view, tool_name, server_name)
        except RequestError:
            self._explain(snapshot, tool_name, server_name, caller)
            raise

    def risk_of(self, snapshot: Snapshot, tool_name: str, server_name: str | None, caller: Caller) -> Risk:
        """The risk class of the tool that a name means; the lowest one if that tool does not exist for this caller."""
        try:
            tool = resolving.meant(self.views.permitted(snapshot, caller), tool_name, server_name)
        except OptimizerError:
            return Risk.READ
        return self.views.decide(caller, tool).risk.risk

    async def exact(self, snapshot: Snapshot, tool_name: str, caller: Caller) -> CatalogTool:
        """The tool that a caller sees under exactly this name."""
        view = await self.views.ready(snapshot, caller)
        if (tool := resolving.exact(view, tool_name)) is None:
            self._explain(snapshot, tool_name, None, caller)
            raise resolving.unknown_tool(view, tool_name, advice="")
        return tool

    def refuse_worse(self, tool: CatalogTool, most: Risk, caller: Caller) -> None:
        """Raises InvalidRequest for a tool with a higher risk class than `most`."""
        if most is Risk.DESTRUCTIVE:
            # No class is higher.
            return
        if not most.covers(risk := self.views.decide(caller, tool).risk.risk):
            raise InvalidRequest(f"{quoted(tool.name)} does not only {most}: it counts as {risk}. Use call_tool.")

    def _explain(self, snapshot: Snapshot, tool_name: str, server_name: str | None, caller: Caller) -> None:
        """Raises CallRefused if a name means a tool that this caller may not call, on a server that exists for it."""
        try:
            tool = resolving.meant(self.views.permitted(snapshot, caller), tool_name, server_name)
        except OptimizerError:
            return
        caller.record.about(tool.server, tool.record.name, tool.record.definition_hash)
        self._decided(tool, caller)

    async def obtain(
        self,
        tool: CatalogTool,
        arguments: Mapping[str, Any] | None,
        caller: Caller,
        latest: Callable[[], Snapshot],
        agreed: Agreed | None = None,
    ) -> Caller:
        """The caller, with permission to make this call. `latest` returns the catalog after a person was asked;
        `agreed` is what a person has agreed to before.
        """
        decision = self._decided(tool, caller)
        if caller.is_continuing:
            # The call was permitted before it was parked, and the pool continues no other call.
            return caller
        if decision.effect is not Effect.ASK or self._approvals.holds(wanted := _approved(tool, caller)):
            return caller
        if agreed is not None and agreed.to == wanted:
            caller.record.approved_by(agreed.by)
            return caller
        if not can_be_shown(arguments or {}):
            raise InvalidRequest(
                f"A person has to approve calls of {quoted(tool.name)}, and cannot be shown {len(arguments or {}):,} "
                f"arguments. Give at most {MOST_ARGUMENTS}."
            )
        asked = OwnQuestion(question(caller.principal, tool.server, tool.record.name, decision, arguments or {}))
        approval = partial(self._approve, asked, decision, tool, wanted, latest)
        assert caller.link is not None
        if caller.link.is_modern:
            # The question is part of the call's result; the answer comes with another request.
            return caller._replace(approval=approval)
        await approval(caller)
        return caller

    def may_be_asked(self, tool: CatalogTool, caller: Caller) -> bool:
        """Whether a person may have to decide about calls of this tool."""
        return self.views.decide(caller, tool).effect is Effect.ASK

    async def agree_to_all(
        self,
        tool: CatalogTool,
        calls: Sequence[Mapping[str, Any]],
        caller: Caller,
        latest: Callable[[], Snapshot],
    ) -> Agreed | None:
        """Asks a person once about several calls of a tool; returns what they agreed to, or None if each call is
        decided by itself. The client can be asked during the call.
        """
        decision = self._decided(tool, caller)
        if not calls or decision.effect is not Effect.ASK or self._approvals.holds(wanted := _approved(tool, caller)):
            return None
        if not can_all_be_shown(calls):
            raise InvalidRequest(
                f"A person has to approve calls of {quoted(tool.name)}, and cannot be shown {len(calls):,} at a time. "
                f"Give fewer: at most {MOST_ARGUMENTS_OF_MANY} arguments together."
            )
        asked = OwnQuestion(question(caller.principal, tool.server, tool.record.name, decision, *calls))
        return Agreed(wanted, await self._approve(asked, decision, tool, wanted, latest, caller))

    def _decided(self, tool: CatalogTool, caller: Caller) -> Decision:
        decision = self.views.decide(caller, tool)
        caller.record.decided(decision)
        if decision.effect is not Effect.ALLOW and (decision.is_denied or not can_ask(caller)):
            raise call_refusal(decision, tool.server, tool.record.name)
        classes = caller.principal.classes
        if classes is not None and decision.risk.risk not in classes:
            lacking = replace(decision, effect=Effect.DENY, because=LACKING_SCOPES)
            caller.record.decided(lacking)
            raise call_refusal(lacking, tool.server, tool.record.name)
        return decision

    async def _approve(
        self,
        asked: OwnQuestion,
        decision: Decision,
        tool: CatalogTool,
        wanted: Approved,
        latest: Callable[[], Snapshot],
        caller: Caller,
    ) -> str:
        """Ask the person behind the client, and return who agreed; raises CallRefused unless they agree and the tool is
        still the same.
        """
        assert caller.link is not None
        try:
            async with asyncio.timeout(self._patience):
                answer = consent_in(await caller.link.ask(ELICITATION, asked))
        except (RpcError, TimeoutError):
            answer = Consent.NO
        if answer is Consent.NO:
            raise call_refusal(decision, tool.server, tool.record.name)
        who = f"the user of {printable(caller.client) or 'the client'}: {answer.value}"
        caller.record.approved_by(who)
        if not _is_there(self.views.own(latest(), caller), tool):
            raise InvalidRequest(f"{quoted(tool.record.name)} changed while a person was asked. Look at it again.")
        self._decided(tool, caller)
        if answer is Consent.HOUR:
            self._approvals.remember(wanted)
        return who


def _is_there(snapshot: Snapshot, tool: CatalogTool) -> bool:
    """Whether the tool is still the one that the person agreed to."""
    position = snapshot.names.position(tool.server, tool.record.name)
    now = snapshot.tools[position] if position is not None else None
    return now is not None and now.record.definition_hash == tool.record.definition_hash


def _approved(tool: CatalogTool, caller: Caller) -> Approved:
    record = tool.record
    return Approved(caller.principal.id, caller.conversation, tool.server, record.name, record.definition_hash)
