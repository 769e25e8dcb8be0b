"""A task as a user would put it, three ways of doing it, and the right answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.scripts_tasks.model import Model
from benchmarks.scripts_tasks.world import World

Way = Callable[[Model, World], Awaitable[Any]]


@dataclass(frozen=True)
class Task:
    """One task. Its ways return the answer, as far as it was read from results."""

    name: str
    asked: str
    servers: tuple[str, ...]
    search: tuple[str, ...]
    """What a model searches for: the same texts in every way."""
    uses: tuple[str, ...]
    """The tools that the task takes; the replies must show all of them."""
    one_by_one: Way
    script: str
    """Its last expression is the answer. $files, $repo and $site are where things are."""
    answer: Any
    select: Way | None = None
    """With an expert's select; None where no result has a part that would do."""
    may_change: tuple[str, ...] = ()
    reads: Callable[[Any], Any] = lambda value: value
    """How the answer is read from what the script returned."""

    def script_in(self, world: World) -> str:
        text = self.script.strip()
        for name, place in world.places.items():
            text = text.replace(f"${name}", place)
        return text
