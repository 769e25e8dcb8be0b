"""What our own tools and tokens cost, and what events say about both. Used by reports, the dashboard and /metrics."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mcp_optimizer.app.parts import Parts
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.config.known_clients.habits import habits_of
from mcp_optimizer.domain.client_habits import ResultRoom
from mcp_optimizer.domain.events import Event
from mcp_optimizer.gateway.found_tools import FoundTools
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.metrics.savings import PLAIN_PRICES, Assumptions, Prices, own_history, prices_of
from mcp_optimizer.metrics.usage import Usage, make_usage
from mcp_optimizer.metrics.weights import weights
from mcp_optimizer.runtime.lazy import lazy


@lru_cache(maxsize=1_000)
def _loads_on_demand(client: str) -> bool:
    return habits_of(client).loads_on_demand


@lru_cache(maxsize=1_000)
def _sends_definitions(client: str) -> bool:
    return habits_of(client).sends_definitions


@lru_cache(maxsize=1_000)
def _own_prompt(client: str) -> int:
    return habits_of(client).own_prompt


@lru_cache(maxsize=1_000)
def _room(client: str) -> ResultRoom:
    return habits_of(client).room


@lru_cache(maxsize=1_000)
def _tells_conversations_apart(client: str) -> bool:
    habits = habits_of(client)
    return habits.runs_for_a_conversation or bool(habits.conversation_key)


class Costs:
    """Costs in tokens and, if the settings name a model, in money."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._counted: tuple[Sequence[dict[str, Any]], int] = ((), 0)

    @property
    def own_tokens(self) -> int:
        """The cost of our own tools in every prompt."""
        own = self._parts.own_tools()
        if self._counted[0] != own:
            self._counted = own, sum(self._parts.counter.count_many([compact(tool) for tool in own]))
        return self._counted[1]

    @lazy
    def prices(self) -> Prices:
        """The prices of the configured model; otherwise typical ratios."""
        model = self._parts.settings.price_model
        return prices_of(model) if model else PLAIN_PRICES

    @property
    def assumptions(self) -> Assumptions:
        settings = self._parts.settings
        return Assumptions(
            settings.requests_per_session,
            self.own_tokens,
            _loads_on_demand,
            _sends_definitions,
            _tells_conversations_apart,
            settings.context_window,
            _own_prompt,
            _room,
        )

    def usage(self, events: Sequence[Event], others: int = 0, *, everything: bool = False) -> Usage:
        """What these events say about the servers of this optimizer.

        Events of other configurations, and of servers that ours no longer has, are only counted (with `others`, which
        were not even read), unless `everything` is true.
        """
        snapshot = self._parts.catalog.snapshot
        if not everything:
            own = own_history(events, self._parts.configuration, snapshot.states)
            events, others = own.events, others + own.others
        return make_usage(events, weights(snapshot), self.assumptions, self.prices, others)

    def of_search(self, query: str) -> tuple[FoundTools, str, int]:
        """The default reply of find_tool, its text as a model reads it, and its cost."""
        found = self._parts.gateway.find(query, detail=Detail(self._parts.settings.detail))
        return found, found.text, found.reply_tokens
