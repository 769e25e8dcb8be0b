"""Whether a call may be made now: the caller's rate, the decision, and, where that is to ask, a person's yes.

Called by the gateway before it passes a call on. A person is asked through the caller's client, never through the
model: a legacy client in the middle of its call, a modern one by the call's result (`upstream/parked.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.decisions import Decision, Effect
from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.errors import InvalidRequest, OptimizerError, RequestError, quoted
from mcp_optimizer.gateway import resolving
from mcp_optimizer.gateway.views import Views, can_ask
from mcp_optimizer.policy.access import LACKING_SCOPES, refusal
from mcp_optimizer.policy.approvals import (
    MOST_ARGUMENTS,
    Approvals,
    Approved,
    Consent,
    can_be_shown,
    consent_in,
    question,
)
from mcp_optimizer.policy.rates import Rates
from mcp_optimizer.runtime.terminal_text import printable
from mcp_optimizer.upstream.endings import RpcError
from mcp_optimizer.upstream.questions import ELICITATION, OwnQuestion

_PATIENCE = 300.0
"""Seconds a person has to answer a legacy client's question."""


class Permissions:
    """Admits calls, or raises what a model should read."""

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
        """How often callers may call who have no rate of their own."""
        self._rates.use(per_minute)

    def server_gone(self, server: str) -> None:
        """What a person agreed to was about a server that is not there any more."""
        self._approvals.forget_server(server)

    def take_turn(self, caller: Caller, calls: int = 1) -> None:
        """Count a request of this caller as so many calls; raises TooManyCalls."""
        self._rates.check(caller.principal, calls)

    async def resolve(self, snapshot: Snapshot, tool_name: str, server_name: str | None, caller: Caller) -> CatalogTool:
        """The one tool that a name means for a caller; else why there is none, or why it may not be called."""
        view = await self.views.ready(snapshot, caller)
        try:
            return resolving.meant(view, tool_name, server_name)
        except RequestError:
            self._explain(snapshot, tool_name, server_name, caller)
            raise

    def risk_of(self, snapshot: Snapshot, tool_name: str, server_name: str | None, caller: Caller) -> Risk:
        """The class of the tool that a name means; of one that does not exist for this caller, the least."""
        try:
            tool = resolving.meant(self.views.permitted(snapshot, caller), tool_name, server_name)
        except OptimizerError:
            return Risk.READ
        return self.views.decide(caller, tool).risk.risk

    async def exact(self, snapshot: Snapshot, tool_name: str, caller: Caller) -> CatalogTool:
        """The tool that a caller sees under exactly this name."""
        view = snapshot if self.views.sees_all(caller) else await self.views.ready(snapshot, caller)
        if (tool := resolving.exact(view, tool_name)) is None:
            self._explain(snapshot, tool_name, None, caller)
            raise resolving.unknown_tool(view, tool_name, advice="")
        return tool

    def refuse_worse(self, tool: CatalogTool, most: Risk, caller: Caller) -> None:
        """Raises InvalidRequest for a tool that may do more than the worst that is called."""
        if most is Risk.DESTRUCTIVE:
            # Nothing is worse.
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
        self, tool: CatalogTool, arguments: Mapping[str, Any] | None, caller: Caller, latest: Callable[[], Snapshot]
    ) -> Caller:
        """The caller, with permission to make this call. `latest`: the catalog after a person was asked."""
        decision = self._decided(tool, caller)
        if caller.is_continuing:
            # The call was permitted before it was parked, and the pool makes no other.
            return caller
        if decision.effect is not Effect.ASK or self._approvals.holds(wanted := _approved(tool, caller)):
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
            # Asked by the call's result; the answer comes with another request.
            return caller._replace(approval=approval)
        await approval(caller)
        return caller

    def _decided(self, tool: CatalogTool, caller: Caller) -> Decision:
        decision = self.views.decide(caller, tool)
        caller.record.decided(decision)
        if decision.effect is not Effect.ALLOW and (decision.is_denied or not can_ask(caller)):
            raise refusal(decision, tool.server, tool.record.name)
        classes = caller.principal.classes
        if classes is not None and decision.risk.risk not in classes:
            lacking = replace(decision, effect=Effect.DENY, because=LACKING_SCOPES)
            caller.record.decided(lacking)
            raise refusal(lacking, tool.server, tool.record.name)
        return decision

    async def _approve(
        self,
        asked: OwnQuestion,
        decision: Decision,
        tool: CatalogTool,
        wanted: Approved,
        latest: Callable[[], Snapshot],
        caller: Caller,
    ) -> None:
        """Ask the person behind the client; raises CallRefused unless they agree to what is still there."""
        assert caller.link is not None
        try:
            async with asyncio.timeout(self._patience):
                answer = consent_in(await caller.link.ask(ELICITATION, asked))
        except (RpcError, TimeoutError):
            answer = Consent.NO
        if answer is Consent.NO:
            raise refusal(decision, tool.server, tool.record.name)
        caller.record.approved_by(f"the user of {printable(caller.client) or 'the client'}: {answer.value}")
        if not _is_there(latest(), tool):
            raise InvalidRequest(f"{quoted(tool.record.name)} changed while a person was asked. Look at it again.")
        self._decided(tool, caller)
        if answer is Consent.HOUR:
            self._approvals.remember(wanted)


def _is_there(snapshot: Snapshot, tool: CatalogTool) -> bool:
    """Whether the tool is still what somebody agreed to."""
    position = snapshot.names.position(tool.server, tool.record.name)
    now = snapshot.tools[position] if position is not None else None
    return now is not None and now.record.definition_hash == tool.record.definition_hash


def _approved(tool: CatalogTool, caller: Caller) -> Approved:
    record = tool.record
    return Approved(caller.principal.id, caller.conversation, tool.server, record.name, record.definition_hash)
