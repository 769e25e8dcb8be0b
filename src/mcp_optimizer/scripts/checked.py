"""What the check of a script found: what keeps it from being run, and what to remember if it fails. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_optimizer.scripts.problems import Problem

_MOST_REMARKS = 3


@dataclass(frozen=True)
class Checked:
    """The problems by line, errors before warnings."""

    problems: tuple[Problem, ...] = ()
    unreadable: str = ""
    """Why the script cannot be read at all."""

    @property
    def refusals(self) -> list[str]:
        """Why the script is not run, as its author reads it; nothing if it is."""
        found = [str(one) for one in self.problems if not one.is_warning]
        return [self.unreadable, *found] if self.unreadable else found

    def remarks(self, line: int | None, *, is_of_a_tool: bool) -> list[str]:
        """What its author should read once it failed on a line: warnings there, or before it, where a wrong value may
        come from. `is_of_a_tool`: a tool failed, so that only what stands on its line can be the reason.
        """
        seen = [one for one in self.problems if one.is_warning and line is not None and one.line <= line]
        there = [one for one in seen if one.line == line]
        near = there or ([] if is_of_a_tool else seen[-_MOST_REMARKS:])
        return [f"In earlier results, {one.message} (line {one.line})" for one in near[:_MOST_REMARKS]]
