"""What a caller may do with a tool, and why. Frozen values; `access/policy` decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mcp_optimizer.domain.principal import Risk


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
