"""Explains one decision step by step, and counts many decisions, for the person who writes the rules. Pure.

Called by `policy test` and the dashboard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mcp_optimizer.access.policy.policy import SOURCES, Policy, own_limits
from mcp_optimizer.domain.caller import Decision, Effect, Principal, Risk, RiskClass, Rule
from mcp_optimizer.runtime.terminal_text import in_a_line

_GROUPS_SHOWN: Final = 50


@dataclass(frozen=True)
class Consideration:
    """One step of a decision: what was checked, and the result."""

    about: str
    said: str


@dataclass(frozen=True)
class Explanation:
    """A decision and the steps that led to it."""

    decision: Decision
    steps: tuple[Consideration, ...]
    rule: int | None
    """The number of the rule that decided, counted from 1."""
    changes: tuple[str, ...]
    """Changes that would lead to another decision."""


def explain(policy: Policy, principal: Principal, server: str, tool: str, annotations: object) -> Explanation:
    """Explain why a caller may or may not call a tool."""
    risk = policy.risk(server, tool, annotations)
    decision = policy.decide(principal, server, tool, annotations)
    is_own = own_limits(principal, server, risk) is not None
    matched = None if is_own else policy.rulebook.first_match(principal, server, tool, risk.risk)
    rule = None if matched is None else policy.rulebook.rules[matched]
    servers = "all servers" if principal.servers is None else ", ".join(sorted(principal.servers)) or "no server"
    steps = [
        Consideration("class", f"{risk.risk}, by {SOURCES[risk.source]}"),
        Consideration("servers", f"{principal.name} may use {servers}"),
        Consideration("risk", f"{principal.name} may call tools up to {principal.risk}"),
        *_about_groups(policy, principal),
        Consideration("rule", _about_rules(policy, is_own, matched, rule)),
    ]
    return Explanation(
        decision,
        tuple(steps),
        None if matched is None else matched + 1,
        _changes(principal, server, tool, decision, matched),
    )


def written(rule: Rule) -> str:
    """A rule as written in the settings file, without defaults."""
    parts = {
        "effect": rule.effect.value,
        "server": "" if rule.server == "*" else rule.server,
        "tool": "" if rule.tool == "*" else rule.tool,
        "risk": rule.risk.value if rule.risk else "",
        "caller": "" if rule.caller == "*" else rule.caller,
        "group": rule.group or "",
    }
    return ", ".join(f"{key} = {value!r}" for key, value in parts.items() if value)


def _about_groups(policy: Policy, principal: Principal) -> list[Consideration]:
    """The caller's groups, if it has any or rules are about groups."""
    if principal.groups:
        groups = ", ".join(in_a_line(group) for group in sorted(principal.groups)[:_GROUPS_SHOWN])
        more = len(principal.groups) - _GROUPS_SHOWN
        groups += f" and {more:,} more" if more > 0 else ""
        return [Consideration("groups", f"{principal.name} is in {groups}")]
    return [Consideration("groups", f"{principal.name} is in none")] if policy.rulebook.names_groups else []


def _about_rules(policy: Policy, is_own: bool, matched: int | None, rule: Rule | None) -> str:
    if is_own:
        return "not asked: the caller itself may not do this"
    if rule is not None and matched is not None:
        return f"rule {matched + 1} is the first that matches: {written(rule)}"
    count = len(policy.rulebook.rules)
    return f"none of {count:,} matches" if count else "there are none"


def _changes(principal: Principal, server: str, tool: str, decision: Decision, matched: int | None) -> tuple[str, ...]:
    changes = []
    if principal.servers is not None and server not in principal.servers:
        changes.append(f"a key that includes the server {server!r}")
    if not principal.risk.covers(decision.risk.risk):
        changes.append(f"a key for {decision.risk.risk} tools")
        if decision.risk.source != "override":
            changes.append(f"tool_risks.'{server}__{tool}' = '{principal.risk}', if the tool does no more than that")
    if changes:
        return tuple(changes)
    if decision.effect is Effect.ALLOW:
        where = "" if matched is None else f" before rule {matched + 1}"
        return (f"a rule{where} with effect = 'deny', server = '{server}', tool = '{tool}'",)
    changes.append(
        f"a rule before rule {(matched or 0) + 1} with effect = 'allow', server = '{server}', tool = '{tool}'"
    )
    return tuple(changes)


@dataclass(frozen=True)
class Survey:
    """How many of a set of tools each rule or limit decides, for one caller."""

    tools: int
    by_rule: Mapping[int | None, int]
    """How many tools each rule decides, by the rule's position; None: no rule matches."""
    by_limits: int
    """How many tools the caller's own key or token rules out."""
    risks: Mapping[RiskClass, int]
    """How many tools have each class, by its source."""


def survey(policy: Policy, principal: Principal, tools: Iterable[tuple[str, str, object]]) -> Survey:
    """Count what decides about these tools. `tools`: their servers, own names and annotations."""
    by_rule, risks = Counter[int | None](), Counter[RiskClass]()
    by_limits = 0
    for server, tool, hints in tools:
        risk = policy.risk(server, tool, hints)
        risks[risk] += 1
        if own_limits(principal, server, risk) is not None:
            by_limits += 1
        else:
            by_rule[policy.rulebook.first_match(principal, server, tool, risk.risk)] += 1
    return Survey(risks.total(), by_rule, by_limits, risks)


def imagined(name: str, servers: frozenset[str] | None, risk: Risk, groups: frozenset[str] = frozenset()) -> Principal:
    """A caller with the permissions that such a key or token would give."""
    return Principal(f"imagined:{name}", name, servers=servers, risk=risk, groups=groups)
