"""Charts drawn on the server as SVG: bars over time, a treemap, small bars in tables. Pure.

Colours are classes of the style sheet, so a chart follows the theme; sizes are attributes, because the content security
policy allows no inline styles. Each chart has a text alternative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_optimizer.dashboard.html import Html, el, short_number
from mcp_optimizer.runtime.patterns import regex


@dataclass(frozen=True)
class Period:
    """One period of the chart: tokens that would have been read, and tokens that were."""

    label: str
    short_label: str
    without: int
    with_us: int


def bars_over_time(periods: Sequence[Period], width: int = 1080, height: int = 220, css: str = "wide") -> Html:
    """Two bars per period on one scale: without the gateway behind, with it in front."""
    left, bottom, top = 52, 22, 8
    most = _round_up(max((p.without for p in periods), default=0) or 1)
    most = max(most, _round_up(max((p.with_us for p in periods), default=0) or 1))
    inner_width, inner_height = width - left - 4, height - bottom - top
    step = inner_width / max(len(periods), 12)
    bar = max(2.0, min(step * 0.62, 46.0))
    shapes: list[Html] = []
    for part in (0, 0.5, 1):
        y = top + inner_height * (1 - part)
        shapes.append(el("line", x1=left, x2=width, y1=_f(y), y2=_f(y), class_="grid"))
        shapes.append(el("text", short_number(most * part), x=left - 8, y=_f(y + 4), class_="axis end"))
    every = max(1, -(-len(periods) * 52 // inner_width))
    for at, period in enumerate(periods):
        x = left + step * at + (step - bar) / 2
        whole, ours = (inner_height * value / most for value in (period.without, period.with_us))
        ours = max(ours, 1.0 if period.with_us else 0.0)
        shapes.append(
            el(
                "g",
                el(
                    "title", f"{period.label}: {period.with_us:,} tokens read, {period.without:,} without mcp-optimizer"
                ),
                _rect(x, top + inner_height - whole, bar, whole, "without"),
                _rect(x, top + inner_height - ours, bar, ours, "with"),
            )
        )
        if at % every == 0:
            shapes.append(el("text", period.short_label, x=_f(x + bar / 2), y=height - 5, class_="axis middle"))
    told = f"Tokens read by models over time, in {len(periods)} periods, with mcp-optimizer and without."
    return el("svg", el("title", told), *shapes, viewbox=f"0 0 {width} {height}", role="img", class_=f"chart {css}")


def _round_up(value: float) -> float:
    """The next larger round number whose half is round too."""
    power = 10.0 ** (len(str(int(value))) - 1)
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)


def share_bar(share: float, kind: str = "with") -> Html:
    """A share as a bar for a table cell; the number appears next to it."""
    percent = max(0.0, min(1.0, share)) * 100
    inside = el("rect", width=f"{percent:.2f}%", height="100%", class_=kind)
    return el("svg", inside, class_="share", aria_hidden="true", width="100%", height="6")


@dataclass(frozen=True)
class Tile:
    """A rectangle of the treemap, with parts inside or a link."""

    label: str
    weight: float
    href: str | None = None
    parts: tuple[Tile, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    width: float
    height: float


_HEADER = 15.0
_GAP = 1.0
_LETTER = 6.7
"""Pixels per letter at the size of labels."""


def treemap(tiles: Sequence[Tile], told: str, width: int, height: int, css: str = "") -> Html:
    """Areas proportional to tokens; each server has a colour and contains its tools."""
    shapes: list[Html] = []
    for at, (tile, box) in enumerate(_laid_out(tiles, _Box(0, 0, width, height))):
        colour = f"tone tone-{at % 8}"
        has_header = box.height > _HEADER * 2.2 and box.width > 40
        inner = _Box(box.x, box.y + _HEADER, box.width, box.height - _HEADER) if has_header else box
        parts = [_tile(part, place, with_label=True) for part, place in _laid_out(tile.parts, inner)]
        header = _label(tile.label, box.x + 4, box.y + 11, box.width - 6, "head") if has_header else None
        background = _rect(box.x, box.y, box.width - _GAP, box.height - _GAP, "server")
        title = el("title", tile.title or tile.label)
        head = el("a", title, background, header, href=tile.href) if tile.href else [title, background, header]
        shapes.append(el("g", head, parts, class_=colour))
    picture = el("title", told), *shapes
    return el("svg", *picture, viewbox=f"0 0 {width} {height}", role="img", class_=f"treemap {css}".strip())


def _tile(tile: Tile, box: _Box, *, with_label: bool) -> Html:
    inside = [
        el("title", tile.title or tile.label),
        _rect(box.x, box.y, box.width - _GAP, box.height - _GAP, "tool"),
        _lines_label(tile.label, box) if with_label else None,
    ]
    # Not in the tab order: a table has the same tools, and two hundred stops help no one.
    return el("a", inside, href=tile.href, tabindex="-1") if tile.href else el("g", inside)


def _label(text: str, x: float, y: float, room: float, css: str = "label") -> Html | None:
    letters = int(room / _LETTER)
    if letters < 4:
        return None
    shown = text if len(text) <= letters else text[: letters - 1] + "…"
    return el("text", shown, x=_f(x), y=_f(y), class_=css)


_LINE = 12.5
"""Pixels from one line of a label to the next."""

_WORDS = regex(r"[^_\-./: ]*[_\-./: ]+|[^_\-./: ]+")


def label_lines(text: str, letters: int, lines: int) -> list[str]:
    """A name on as many lines as there is room for, divided at its joints; nothing if a reader could not tell it from
    others, because too little of it fits.
    """
    found = [""]
    for word in _WORDS.findall(text):
        if len(found[-1]) + len(word.rstrip("_ ")) > letters and found[-1]:
            found.append("")
        found[-1] += word
    shown = [line.strip() for line in found[:lines]]
    if len(found) > lines and shown:
        shown[-1] = shown[-1][: max(letters - 1, 0)] + "…"
    if letters < _ROOMY and any(len(line) > letters for line in shown):
        return []
    cut = [line if len(line) <= letters else line[: letters - 1] + "…" for line in shown]
    seen = sum(len(line.rstrip("…")) for line in cut)
    return cut if letters >= 4 and seen >= min(len(text), _TELLING) else []


_ROOMY = 9
"""Letters of a line from which a part of a word is worth showing."""

_TELLING = 9
"""Letters of a name that tell it from most others of its server."""


def _lines_label(text: str, box: _Box) -> list[Html]:
    lines = label_lines(text, int((box.width - 7) / _LETTER), int((box.height - 4) / _LINE))
    return [
        el("text", line, x=_f(box.x + 4), y=_f(box.y + 13 + number * _LINE), class_="label")
        for number, line in enumerate(lines)
    ]


def _laid_out(tiles: Sequence[Tile], box: _Box) -> list[tuple[Tile, _Box]]:
    """Squarified layout: fills rows along the shorter side, each extended as long as its tiles become squarer."""
    rest = sorted((tile for tile in tiles if tile.weight > 0), key=lambda tile: -tile.weight)
    placed: list[tuple[Tile, _Box]] = []
    total = sum(tile.weight for tile in rest)
    while rest and box.width > 0.5 and box.height > 0.5:
        scale = box.width * box.height / total
        side = min(box.width, box.height)
        row = [rest[0]]
        for tile in rest[1:]:
            if _worst([*row, tile], scale, side) > _worst(row, scale, side):
                break
            row.append(tile)
        weight = sum(tile.weight for tile in row)
        thick = weight * scale / side
        along = 0.0
        for tile in row:
            length = tile.weight * scale / thick
            if box.width >= box.height:
                placed.append((tile, _Box(box.x, box.y + along, thick, length)))
            else:
                placed.append((tile, _Box(box.x + along, box.y, length, thick)))
            along += length
        if box.width >= box.height:
            box = _Box(box.x + thick, box.y, box.width - thick, box.height)
        else:
            box = _Box(box.x, box.y + thick, box.width, box.height - thick)
        rest = rest[len(row) :]
        total -= weight
    return placed


def _worst(row: Sequence[Tile], scale: float, side: float) -> float:
    """The worst aspect ratio of the row's tiles."""
    areas = [tile.weight * scale for tile in row]
    total = sum(areas)
    return max(max(side * side * area / total**2, total**2 / (side * side * area)) for area in areas)


def _rect(x: float, y: float, width: float, height: float, css: str) -> Html:
    return el("rect", x=_f(x), y=_f(y), width=_f(max(width, 0)), height=_f(max(height, 0)), rx="1.5", class_=css)


def _f(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
