"""How commands print: one console for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)
