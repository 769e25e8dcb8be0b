"""How commands print: one console and one way to print JSON, neither of which a server can control."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.terminal_text import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable
    from rich.segment import Segment


def console() -> Console:
    from rich.console import Console, RenderHook

    class EverythingPrintable(RenderHook):
        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            return [_Printable(renderable) for renderable in renderables]

    made = Console(highlight=False, soft_wrap=False)
    made.push_render_hook(EverythingPrintable())
    return made


class _Printable:
    """Removes control characters from printed text; colours are our own and stay."""

    def __init__(self, shown: ConsoleRenderable) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for segment in console.render(self._shown, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def print_json(value: Any) -> None:
    """For programs: one object on one line."""
    print(printable_json(json.dumps(value, ensure_ascii=False)))
