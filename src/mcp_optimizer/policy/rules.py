"""The rules of the settings file, and which of them decides. Called by `access`; knows no settings and no catalog.

The first rule that matches decides; where none does, a call is allowed. Pure, with a bounded memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from mcp_optimizer.domain.decisions import Decision, Effect, RiskClass, Rule
from mcp_optimizer.domain.globs import glob
from mcp_optimizer.domain.principal import Principal, Risk
from mcp_optimizer.policy.rule_index import Names, RuleIndex

NO_RULE: Final = "no rule matches"

_REMEMBERED: Final = 50_000
_LONGEST_REMEMBERED: Final = 1_000
"""Characters of the names of a call whose decision is remembered. Longer ones are decided anew each time."""

_ANY_TOOL: Final = "x"
"""Stands for all tools of a server, where only rules about all of them are asked."""


class RuleBook:
    """All rules, in the order in which they count."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._index = RuleIndex(self.rules)
        # What is not a tool (a resource, a prompt) is covered by rules about all tools of a server.
        self._for_servers = [rule for rule in self.rules if _covers_reading_anything(rule)]
        self._server_index = RuleIndex(self._for_servers)
        self._limited_callers = {rule.caller for rule in self.rules if rule.effect is not Effect.ALLOW}
        self.limits_callers = bool(self._limited_callers)
        """Whether any rule may refuse anybody something, or have a person asked."""
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._decided)
        self._servers = lru_cache(maxsize=_REMEMBERED)(self._server_index.first)

    def decide(self, principal: Principal, server: str, tool: str, risk: RiskClass) -> Decision:
        """What the rules say about a call. What the caller's own key or token permits is decided before."""
        is_short = len(server) + len(tool) + len(principal.name) <= _LONGEST_REMEMBERED
        return (self._remembered if is_short else self._decided)((server, tool, principal.name), risk)

    def _decided(self, names: Names, risk: RiskClass) -> Decision:
        number = self._index.first(names, risk.risk)
        if number is None:
            return Decision(Effect.ALLOW, NO_RULE, risk)
        rule = self.rules[number]
        return Decision(rule.effect, f"rule {number + 1} of the settings", risk, rule.reason)

    def first_match(self, principal: Principal, server: str, tool: str, risk: Risk) -> int | None:
        """The position of the rule that decides, from 0; None if none does. For explanations."""
        return self._index.first((server, tool, principal.name), risk)

    def allows_server(self, principal: Principal, server: str) -> bool:
        """Whether a caller may read a server's resources and use its prompts. A person is not asked about these."""
        number = self._servers((server, _ANY_TOOL, principal.name), Risk.READ)
        return number is None or self._for_servers[number].effect is Effect.ALLOW

    def limits(self, principal: Principal) -> bool:
        """Whether any rule may refuse this caller something, or have a person asked."""
        return any(glob(pattern).matches(principal.name) for pattern in self._limited_callers)


def _covers_reading_anything(rule: Rule) -> bool:
    # No tool's name is empty, so `?*` is about all tools as well.
    is_everything = "*" in rule.tool and rule.tool.strip("*") in ("", "?")
    return is_everything and rule.risk in (None, Risk.READ)
