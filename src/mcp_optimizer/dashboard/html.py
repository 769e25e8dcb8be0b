"""HTML that is escaped by construction: elements take text and elements, and only elements pass unescaped. Pure.

All text from outside passes through this module. Invisible characters that change how a line reads (control characters,
direction marks, invisible tags) are shown as codes, so a reader sees that they are there.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable
from typing import Any

from mcp_optimizer.runtime.patterns import regex


class Html(str):
    """Markup. Only this module makes it from text."""

    __slots__ = ()


Child = Any
"""Text, a number, markup, None for nothing, or a sequence of these."""

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "rect", "line", "path", "circle"})
_KEPT = frozenset("\n\t\u200c\u200d")
"""Layout, and joiners that some scripts and emoji need."""

_SUSPECT = regex(r"[^\x20-\x7e\xa1-\xac\xae-\u02ff\u0370-\u052f\n\t]")
"""Everything except plain text in the most common alphabets needs a closer look."""


def visible(text: str) -> str:
    """The text with every invisible or reordering character shown as its code."""
    return _SUSPECT.sub(lambda found: _shown(found.group()), text)


def _shown(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return character
    return f"‹U+{ord(character):04X}›"


def escape(value: object) -> Html:
    """Text as markup that shows exactly this text."""
    return value if isinstance(value, Html) else Html(html.escape(visible(str(value)), quote=True))


def el(name: str, /, *children: Child, **attributes: object) -> Html:
    """An element. `class_` and `for_` lose their underscore, others become dashes; None and False omit an attribute."""
    shown = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _VOID and not children:
        return Html(f"<{name}{shown}/>")
    return Html(f"<{name}{shown}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    return Html("".join(_flat(child) for child in children))


def _flat(child: Child) -> str:
    if child is None or child is False:
        return ""
    if isinstance(child, str):
        return escape(child)
    if isinstance(child, list | tuple) or hasattr(child, "__next__"):
        return join(child)
    return escape(child)


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    name = {"viewbox": "viewBox"}.get(name, name)
    return f" {name}" if value is True else f' {name}="{escape(value)}"'


def number(value: float, digits: int = 0) -> str:
    return f"{value:,.{digits}f}"


def short_number(value: float) -> str:
    """A short form for axes and small places: 3.7 M, 12 k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"
