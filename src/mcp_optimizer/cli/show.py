"""How commands print: one console, and other people's text made safe for a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# Everything that could move the cursor, recolour or reorder the screen, but not newlines and tabs.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def printable(text: str) -> str:
    return _CONTROL.sub("", text)
