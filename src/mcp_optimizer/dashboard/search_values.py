"""What find_tool would return, and why, as values for the page of a search. Called by `routes`, in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable

from mcp_optimizer.dashboard.search_page import HitShown, SearchPage
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.gateway.entries import summary
from mcp_optimizer.gateway.found import FoundTools
from mcp_optimizer.gateway.gateway import Gateway

Finding = Callable[[str], tuple[FoundTools, str, int]]
"""The reply of find_tool to a request, its text as a model reads it, and its tokens."""

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
    """What find_tool would return, and why."""
    started = time.perf_counter()
    try:
        found, text, reply_tokens = find(query)
    except OptimizerError as error:
        return SearchPage(version, query, problem=str(error))
    taken = (time.perf_counter() - started) * 1_000
    snapshot = gateway.snapshot
    places = {tool.name: at for at, tool in enumerate(snapshot.tools) if tool is not None}
    at = [places[hit.tool.name] for hit in found.tools if hit.tool.name in places]
    # A server may be gone since; no explanation is better than a wrong one.
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
