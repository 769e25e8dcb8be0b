"""The page that shows the reply of find_tool to a request, and the reasons for it.

`overview_routes` makes the values in a thread. Knows no request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_optimizer.dashboard.charts import share_bar
from mcp_optimizer.dashboard.html import Html, el, number
from mcp_optimizer.dashboard.page_parts import figure, frame, section, server_href, sign, table, tool_href
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.gateway.found_tools import FoundTools, likelihood, summary
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.metrics.reduction import Reduction, change_in_words


@dataclass(frozen=True)
class HitShown:
    """A tool that a search returned, and the reasons."""

    server: str
    tool: str
    summary: str
    score: float
    tokens: int
    full_tokens: int
    parts: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class SearchPage:
    """The result of a search."""

    version: str
    query: str
    hits: Sequence[HitShown] = ()
    fit: float = 0.0
    reply_tokens: int = 0
    baseline: int = 0
    milliseconds: float = 0.0
    note: str = ""
    problem: str = ""
    reply: str = ""
    """The text that a model reads."""


def search_page(values: SearchPage, visitor: Visitor | None = None) -> str:
    return frame(
        f"Search: {values.query}" if values.query else "Search",
        el("h1", "What find_tool returns"),
        _search_result(values),
        version=values.version,
        query=values.query,
        visitor=visitor,
    )


def _search_result(values: SearchPage) -> Html | list[Html]:
    if values.problem:
        return el("p", values.problem, class_="empty")
    if not values.query:
        return el("p", "Search for an action, as a model does: “move a card to another column”.", class_="empty")
    against = Reduction.of(values.baseline, values.reply_tokens)
    compared = figure(
        "Against all definitions", change_in_words(against), f"than {number(values.baseline)} tokens", sign(against)
    )
    figures = el(
        "dl",
        figure("The reply costs", number(values.reply_tokens), "tokens, once"),
        # A search without hits saves nothing and answers nothing.
        [compared, figure("Likely to answer", likelihood(values.fit), "the first tool")] if values.hits else None,
        figure("Took", f"{values.milliseconds:.1f} ms", "on this machine"),
        class_="figures",
    )
    note = el("p", values.note, class_="note") if values.note else None
    if not values.hits:
        return [figures, el("p", "Nothing fits well enough, so nothing is returned.", class_="empty"), _reply(values)]
    hits = el("ol", [_hit(hit, values.hits) for hit in values.hits], class_="hits")
    return [figures, note or Html(""), _reply(values), hits]


def _reply(values: SearchPage) -> Html:
    """The reply as the model sees it, to the last character."""
    note = f"{values.reply_tokens:,} tokens"
    return section("What the model reads", el("pre", el("code", values.reply), tabindex="0"), note=note, css="reply")


def _hit(hit: HitShown, hits: Sequence[HitShown]) -> Html:
    most = max((value for other in hits for _, value in other.parts), default=0) or 1
    rows = [
        (name, share_bar(max(value, 0) / most), f"{value:+.3f}")
        for name, value in sorted(hit.parts, key=lambda part: -abs(part[1]))
        if abs(value) >= 0.0005
    ]
    return el(
        "li",
        el("div",
           el("h2", el("a", hit.tool, href=tool_href(hit.server, hit.tool)), " ",
              el("a", hit.server, href=server_href(hit.server), class_="note")),
           el("p", hit.summary),
           el("p", f"{hit.tokens:,} tokens in the reply, {hit.full_tokens:,} as its server sent it", class_="note")),
        el("div",
           el("p", el("strong", likelihood(hit.score)), " likely to answer; ranked by", class_="note"),
           table(("part", "", "#adds"), rows, f"Parts of the rank of {hit.tool}", "why")),
    )  # fmt: skip


Finding = Callable[[str], tuple[FoundTools, str, int]]
"""The reply of find_tool to a request, its text for the model, and its tokens."""

_PARTS = {
    "meaning": ("cosine", "part_cosine"),
    "name": ("bm25_name", "name_named", "name_phrase"),
    "exact name": ("exact_name",),
    "server": ("bm25_server", "server_named"),
    "description": ("bm25_description",),
    "parameters": ("bm25_parameters",),
    "all words": ("bm25_all", "bm25_part", "query_met"),
    "action": ("same_action", "other_action", "negation"),
    "use, deprecation, unasked deletion": ("use", "deprecation", "unasked"),
}
"""The ranker's features, in words for people."""


def found_page(gateway: Gateway, find: Finding, version: str, query: str) -> SearchPage:
    """The page with the result of a search and its reasons."""
    started = time.perf_counter()
    try:
        found, text, reply_tokens = find(query)
    except OptimizerError as error:
        return SearchPage(version, query, problem=str(error))
    taken = (time.perf_counter() - started) * 1_000
    snapshot = gateway.snapshot
    places = {tool.name: at for at, tool in enumerate(snapshot.tools) if tool is not None}
    at = [places[hit.tool.name] for hit in found.tools if hit.tool.name in places]
    # A server may have been removed since; no explanation is better than a wrong one.
    why = snapshot.index.contributions(query, at) if len(at) == len(found.tools) else [{} for _ in found.tools]
    hits = [
        HitShown(
            hit.tool.server,
            hit.tool.record.name,
            summary(hit.tool),
            hit.score,
            hit.form.tokens,
            hit.tool.tokens,
            [(part, sum(parts.get(name, 0.0) for name in names)) for part, names in _PARTS.items()],
        )
        for hit, parts in zip(found.tools, why, strict=True)
    ]
    note = "By words only: the encoder is still loading." if found.by_words_only else ""
    baseline = (found.sent or found.token_metrics).baseline_tokens
    return SearchPage(version, query, hits, found.fit, reply_tokens, baseline, taken, note, reply=text)
