"""What the settings file may say in one rule, and how an error names its place. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mcp_optimizer.domain.decisions import Effect, Rule
from mcp_optimizer.domain.globs import glob
from mcp_optimizer.domain.principal import Risk


def _readable(pattern: str) -> str:
    return glob(pattern).pattern


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_readable)]
"""A glob that was read once, so that a wrong one is an error at the start and not in a call."""


class RuleSettings(BaseModel):
    """One rule: what happens, and to whose calls of which tools. What it leaves out matches everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    effect: Effect
    server: Pattern = "*"
    tool: Pattern = "*"
    risk: Risk | None = None
    caller: Pattern = "*"
    reason: str = Field(default="", max_length=1_000)

    @property
    def rule(self) -> Rule:
        """The value that `policy` works with."""
        return Rule(self.effect, self.server, self.tool, self.risk, self.caller, self.reason)


def place_in_rules(location: Sequence[int | str]) -> str:
    """Where in `rules` an error is, as people count: "rule 3, 'tol'". Empty for the whole list."""
    number = f"rule {location[0] + 1}" if location and isinstance(location[0], int) else ""
    return f"{number}, {location[1]!r}" if number and len(location) > 1 else number
