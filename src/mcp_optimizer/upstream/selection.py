"""Which tools of a server are used: those that its entry names, minus those that it turns off. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

ALL = ("*",)


@dataclass(frozen=True)
class ToolSelection:
    """Names of tools, with `*` as a wildcard. Turned-off tools are off even if they are also named."""

    used: tuple[str, ...] = ALL
    turned_off: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether it excludes anything."""
        return "*" not in self.used or bool(self.turned_off)

    def admits(self, name: str) -> bool:
        return _is_one_of(name, self.used) and not _is_one_of(name, self.turned_off)

    def idle(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names in the entry that match no tool, most likely mistyped."""
        there = list(names)
        said = dict.fromkeys((*self.used, *self.turned_off))
        return tuple(one for one in said if one != "*" and not any(fnmatchcase(name, one) for name in there))


def _is_one_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


EVERY_TOOL = ToolSelection()
