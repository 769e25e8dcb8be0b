"""The catalog as a map: servers and their tools, by the tokens of their definitions. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_optimizer.dashboard.charts import Tile, treemap
from mcp_optimizer.dashboard.html import Html, el
from mcp_optimizer.dashboard.parts import server_href, tool_href
from mcp_optimizer.metrics.weights import Weight, by_server, total
from mcp_optimizer.runtime.terminal_text import counted

_MOST_SERVERS = 24
_MOST_TILES = 220


def catalog_map(weights: Sequence[Weight], *, links: bool = True) -> Html:
    """The catalog as a chart: area is tokens. Twice, for wide and for narrow screens."""
    tiles = _tiles(weights, links=links)
    told = (
        f"Map of {len(weights):,} tools by the tokens of their definitions, grouped by server. "
        "The same numbers are in tables."
    )
    return el("div", treemap(tiles, told, 1080, 420, "wide"), treemap(tiles, told, 380, 480, "narrow"), class_="maps")


def _tiles(weights: Sequence[Weight], *, links: bool) -> list[Tile]:
    servers = by_server(weights)
    totals = {server: total(own) for server, own in servers.items()}
    ordered = sorted(servers, key=lambda server: (-totals[server], server))
    shown, others = ordered[:_MOST_SERVERS], ordered[_MOST_SERVERS:]
    all_tokens = sum(totals.values()) or 1
    tiles = [
        Tile(
            server,
            totals[server],
            server_href(server) if links else None,
            _tool_tiles(servers[server], max(1, round(_MOST_TILES * totals[server] / all_tokens)), links=links),
            f"{server}: {counted(len(servers[server]), 'tool')}, {totals[server]:,} tokens",
        )
        for server in shown
    ]
    if others:
        rest = sum(totals[server] for server in others)
        label = f"{len(others):,} more servers"
        tiles.append(Tile(label, rest, "/catalog" if links else None, (), f"{label}: {rest:,} tokens"))
    return tiles


def _tool_tiles(own: Sequence[Weight], most: int, *, links: bool) -> tuple[Tile, ...]:
    ordered = sorted(own, key=lambda weight: (-weight.tokens, weight.tool))
    shared = len(shared_beginning([weight.tool for weight in own]))
    tiles = [
        Tile(
            w.tool[shared:],
            w.tokens,
            tool_href(w.server, w.tool) if links else None,
            (),
            f"{w.tool}: {w.tokens:,} tokens",
        )
        for w in ordered[:most]
    ]
    if rest := ordered[most:]:
        tokens = total(rest)
        tiles.append(Tile(f"{len(rest):,} more", tokens, None, (), f"{len(rest):,} more tools: {tokens:,} tokens"))
    return tuple(tiles)


_JOINTS = "_-./: "


def shared_beginning(names: Sequence[str]) -> str:
    """What all names of a server's tools begin with, up to a joint: `browser_` tells none of them apart."""
    if len(names) < 2:
        return ""
    # What the first and the last in order share, all share.
    first, last = min(names), max(names)
    common = first[: next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]
    end = max((common.rfind(joint) for joint in _JOINTS), default=-1) + 1
    return common[:end] if all(len(name) > end for name in names) else ""
