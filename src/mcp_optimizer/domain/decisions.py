"""What a caller may do with a tool, and why. Frozen values; `policy` decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mcp_optimizer.domain.principal import Risk


class Effect(StrEnum):
    """The outcome of a decision."""

    ALLOW = "allow"
    ASK = "ask"
    """Allowed if a person says so, each time."""
    DENY = "deny"


@dataclass(frozen=True)
class Rule:
    """One rule of the settings file. What it leaves out matches everything; patterns are globs."""

    effect: Effect
    server: str = "*"
    tool: str = "*"
    risk: Risk | None = None
    """The class of tools it is about; None: every class."""
    caller: str = "*"
    """The names of callers it is about."""
    reason: str = ""
    """Told to whoever is refused or asked."""


class RiskClass(NamedTuple):
    """The class of a tool, and what says so: "override", "annotations", "name" or "default".

    A named tuple, because decisions are remembered by it and a dataclass takes long to be hashed.
    """

    risk: Risk
    source: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a caller may call a tool."""

    effect: Effect
    because: str
    """What decided, for people: "rule 3 of the settings", "the key's servers", "no rule matches"."""
    risk: RiskClass
    reason: str = ""
    """The rule's own reason, if it gives one."""

    @property
    def is_denied(self) -> bool:
        return self.effect is Effect.DENY
