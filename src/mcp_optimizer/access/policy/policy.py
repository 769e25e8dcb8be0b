"""The one place that decides whether a caller may call a tool: for search, lists, calls, resources and prompts alike.

Called by the gateway and the relay, which enforce it. Knows neither the catalog nor how a person is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from mcp_optimizer.access.policy.risk import LONGEST_REMEMBERED, overridden, risk_by_definition
from mcp_optimizer.access.policy.rules import RuleBook
from mcp_optimizer.domain.decisions import Decision, Effect, RiskClass
from mcp_optimizer.domain.principal import Principal, Risk
from mcp_optimizer.errors import CallRefused

THE_CALLERS_SERVERS: Final = "the caller's servers"
LACKING_SCOPES: Final = "the token's scopes"

_ONLY: Final = {Risk.READ: "the caller may only read", Risk.WRITE: "the caller may only read and write"}


class Policy:
    """Decides what callers may do: first by their own keys and tokens, then by the rules."""

    def __init__(self, rulebook: RuleBook | None = None, overrides: Mapping[str, Risk] | None = None) -> None:
        self.use(rulebook or RuleBook(), overrides or {})

    def use(self, rulebook: RuleBook, overrides: Mapping[str, Risk]) -> None:
        """Decide by these from now on. The rulebook is a new object each time, which invalidates cached decisions."""
        self.rulebook = rulebook
        self._overrides = dict(overrides)
        self._overridden = lru_cache(maxsize=50_000)(self._override)

    def risk(self, server: str, tool: str, annotations: object) -> RiskClass:
        """The risk class of a tool, and its source."""
        if self._overrides:
            is_short = len(tool) <= LONGEST_REMEMBERED
            given = self._overridden(server, tool) if is_short else self._override(server, tool)
            if given is not None:
                return given
        return risk_by_definition(tool, annotations)

    def _override(self, server: str, tool: str) -> RiskClass | None:
        return overridden(server, tool, self._overrides)

    def decide(self, principal: Principal, server: str, tool: str, annotations: object) -> Decision:
        """Whether a caller may call a server's tool. `tool` is the tool's own name on its server."""
        risk = self.risk(server, tool, annotations)
        denied = own_limits(principal, server, risk) if principal.is_limited else None
        return denied or self.rulebook.decide(principal, server, tool, risk)

    def decide_server(self, principal: Principal, server: str) -> bool:
        """Whether a caller may read a server's resources and use its prompts.

        Of the rules, only those about all tools of a server apply, for every class or for read. `ask` refuses here,
        because no person is asked about a list.
        """
        if principal.servers is not None and server not in principal.servers:
            return False
        return self.rulebook.allows_server(principal, server)

    def is_open_for(self, principal: Principal) -> bool:
        """Whether nothing can be refused to this caller or need approval, so that it sees the whole catalog."""
        book = self.rulebook
        return not principal.is_limited and not (book.limits_callers and book.limits(principal))


def own_limits(principal: Principal, server: str, risk: RiskClass) -> Decision | None:
    """The refusal by the caller's own key or token; None if those permit the call."""
    if principal.servers is not None and server not in principal.servers:
        return Decision(Effect.DENY, THE_CALLERS_SERVERS, risk)
    if not principal.risk.covers(risk.risk):
        return Decision(Effect.DENY, _ONLY[principal.risk], risk)
    return None


def call_refusal(decision: Decision, server: str, tool: str) -> CallRefused:
    """The error for a call that was not allowed, with advice."""
    risk = decision.risk
    if decision.because == THE_CALLERS_SERVERS:
        because = f"{THE_CALLERS_SERVERS} do not include {server!r}"
        advice = "Use a tool of another server, or a key that includes this one."
    elif decision.because in _ONLY.values():
        because = f"{decision.because}, and this tool counts as {risk.risk} (by {SOURCES[risk.source]})"
        advice = "Use a tool that does less, or a key with more rights; the operator can set the class in tool_risks."
    elif decision.because == LACKING_SCOPES:
        because = f"{LACKING_SCOPES} are not enough for a tool that counts as {risk.risk} (by {SOURCES[risk.source]})"
        advice = "Tell the user: a token with more scopes can call it."
    elif decision.effect is Effect.ASK:
        because = f"{decision.because} needs a person's agreement, and no person agreed"
        advice = "Tell the user which call you wanted to make, and why."
    else:
        because = f"{decision.because} denies it"
        advice = "The operator can see why with `mcp-optimizer policy test`."
    return CallRefused(tool, server, because, decision.reason, advice)


SOURCES: Final = {
    "override": "the operator's setting",
    "annotations": "its annotations",
    "name": "its name",
    "default": "default: its effect is not declared",
}
