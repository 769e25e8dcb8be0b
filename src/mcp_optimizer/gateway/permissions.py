"""Whether a call may be made now: the caller's rate, the decision, and, where that is to ask, a person's yes.

Called by the gateway before it passes a call on. A person is asked through the caller's client, never through the
model: a legacy client in the middle of its call, a modern one by the call's result (`upstream/parked.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.domain.caller import Caller, ClientLink
from mcp_optimizer.domain.decisions import Decision, Effect
from mcp_optimizer.domain.principal import Principal, Risk
from mcp_optimizer.errors import OptimizerError, RequestError
from mcp_optimizer.gateway import resolving
from mcp_optimizer.gateway.views import Views, can_ask
from mcp_optimizer.policy.access import refusal
from mcp_optimizer.policy.approvals import Approvals, Approved, Consent, consent_in, question
from mcp_optimizer.policy.rates import Rates
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

    async def resolve(self, snapshot: Snapshot, tool_name: str, server_name: str | None, caller: Caller) -> CatalogTool:
        """The one tool that a name means for a caller; else why there is none, or why it may not be called."""
        view = await self.views.ready(snapshot, caller)
        try:
            return resolving.meant(view, tool_name, server_name)
        except RequestError:
            self._explain(snapshot, tool_name, server_name, caller)
            raise

    def risk_of(self, snapshot: Snapshot, tool_name: str, server_name: str | None, principal: Principal) -> Risk:
        """The class of the tool that a name means; of one that does not exist for this caller, the least."""
        try:
            tool = resolving.meant(snapshot, tool_name, server_name)
        except OptimizerError:
            return Risk.READ
        caller = Caller(principal=principal)
        return (
            self.views.decide(caller, tool).risk.risk if self.views.permits_server(caller, tool.server) else Risk.READ
        )

    async def exact(self, snapshot: Snapshot, tool_name: str, caller: Caller) -> CatalogTool:
        """The tool that a caller sees under exactly this name."""
        view = await self.views.ready(snapshot, caller)
        if (tool := resolving.exact(view, tool_name)) is None:
            self._explain(snapshot, tool_name, None, caller)
            raise resolving.unknown_tool(view, tool_name, advice="")
        return tool

    def _explain(self, snapshot: Snapshot, tool_name: str, server_name: str | None, caller: Caller) -> None:
        """Raises CallRefused if a name means a tool that this caller may not call, on a server that exists for it."""
        try:
            tool = resolving.meant(snapshot, tool_name, server_name)
        except OptimizerError:
            return
        if self.views.permits_server(caller, tool.server):
            caller.record.about(tool.server, tool.record.name, tool.record.definition_hash)
            self._decided(tool, caller)

    async def obtain(
        self, tool: CatalogTool, arguments: Mapping[str, Any] | None, caller: Caller, *, is_continued: bool
    ) -> Caller:
        """The caller, with permission to make this call. `is_continued`: it answers a call that was permitted."""
        decision = self._decided(tool, caller)
        if is_continued:
            _note_consent(decision, caller)
            return caller
        self.take_turn(caller)
        if decision.effect is not Effect.ASK or self._approvals.holds(_approved(tool, caller)):
            return caller
        asked = OwnQuestion(question(caller.principal, tool.server, tool.record.name, decision, arguments or {}))
        approval = partial(self._approve, asked, decision, tool, caller)
        assert caller.link is not None
        if caller.link.is_modern:
            # Asked by the call's result; the answer comes with another request.
            return replace(caller, approval=approval)
        await approval(caller.link)
        return caller

    def take_turn(self, caller: Caller) -> None:
        """Count one call of a caller; raises TooManyCalls."""
        self._rates.check(caller.principal)

    def _decided(self, tool: CatalogTool, caller: Caller) -> Decision:
        decision = self.views.decide(caller, tool)
        caller.record.decided(decision)
        if decision.is_denied or (decision.effect is Effect.ASK and not can_ask(caller)):
            raise refusal(decision, tool.server, tool.record.name)
        return decision

    async def _approve(
        self, asked: OwnQuestion, decision: Decision, tool: CatalogTool, caller: Caller, link: ClientLink
    ) -> None:
        """Ask the person behind the client; raises CallRefused unless they agree."""
        try:
            async with asyncio.timeout(self._patience):
                answer = consent_in(await link.ask(ELICITATION, asked))
        except (RpcError, TimeoutError):
            answer = Consent.NO
        if answer is Consent.NO:
            raise refusal(decision, tool.server, tool.record.name)
        caller.record.approved_by(_approver(caller, answer))
        if answer is Consent.HOUR:
            self._approvals.remember(_approved(tool, caller))


def _note_consent(decision: Decision, caller: Caller) -> None:
    """A modern client's answer comes with the request that continues the call, which is the one that is recorded."""
    given = caller.passed_on.get("inputResponses")
    if decision.effect is Effect.ASK and isinstance(given, Mapping):
        for answer in given.values():
            if (consent := consent_in(answer)) is not Consent.NO:
                caller.record.approved_by(_approver(caller, consent))


def _approver(caller: Caller, consent: Consent) -> str:
    return f"the user of {caller.client or 'the client'}: {consent.value}"


def _approved(tool: CatalogTool, caller: Caller) -> Approved:
    record = tool.record
    return Approved(caller.principal.id, caller.conversation, tool.server, record.name, record.definition_hash)
