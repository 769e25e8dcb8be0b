"""Which tools of a server are used: those that its entry in the file names, less those that it turns off. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

ALL = ("*",)


@dataclass(frozen=True)
class ToolSelection:
    """Names of tools, in which `*` stands for anything. What is turned off is off, whoever else names it."""

    used: tuple[str, ...] = ALL
    turned_off: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return "*" not in self.used or bool(self.turned_off)

    def admits(self, name: str) -> bool:
        return _is_one_of(name, self.used) and not _is_one_of(name, self.turned_off)

    def idle(self, names: Iterable[str]) -> tuple[str, ...]:
        """What the entry names and no tool is called: most likely it is mistyped."""
        there = list(names)
        said = dict.fromkeys((*self.used, *self.turned_off))
        return tuple(one for one in said if one != "*" and not any(fnmatchcase(name, one) for name in there))


def _is_one_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


EVERY_TOOL = ToolSelection()
