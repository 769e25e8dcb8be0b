"""Metrics for Prometheus: events are counted as they happen; state and load are read on request.

Labels are bounded: kinds and outcomes are fixed, and servers come from the server file. No client, tool or conversation
is ever a label. Autoscaling uses the load of the process.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.events import Event, EventKind, Outcome
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.metrics.recorder import Recorder
from mcp_optimizer.metrics.savings import Assumptions, RunningSavings
from mcp_optimizer.metrics.weights import by_server, total, weights


@dataclass(frozen=True)
class ProcessLoad:
    """The load of the process at one time."""

    requests: int
    """MCP requests over HTTP in progress."""
    calls: int
    """Calls in progress at servers."""
    waiting: int
    """Calls waiting for a free place at their server."""
    sessions: int
    """Open sessions of legacy clients."""
    loop_lag: float
    """Longest delay of the event loop in the last 15 seconds, in seconds."""
    is_ready: bool


@dataclass(frozen=True)
class GatewayName:
    """Identifies one of several gateways."""

    host: str
    pid: int
    worker: str
    """For example 2/3 with `serve --workers`; empty without workers."""
    version: str

    @property
    def shown(self) -> str:
        """The name for people: the machine, the process, and the worker, if there are several."""
        return f"{self.host}, process {self.pid}" + (f", worker {self.worker}" if self.worker else "")


class LoadGauges(Collector):
    """The gauges for autoscaling."""

    def __init__(self, load: Callable[[], ProcessLoad], name: GatewayName) -> None:
        self._load = load
        self._name = name

    def collect(self) -> Iterator[Metric]:
        load, name = self._load(), self._name
        info = GaugeMetricFamily(
            "mcp_optimizer_gateway", "1, with which gateway this is.", labels=["host", "pid", "worker", "version"]
        )
        info.add_metric([name.host, str(name.pid), name.worker, name.version], 1)
        yield info
        for metric, text, value in (
            ("requests_in_flight", "MCP requests over HTTP in progress.", load.requests),
            ("calls_in_flight", "Calls that servers work on.", load.calls),
            ("calls_waiting", "Calls that wait for a place at their server.", load.waiting),
            ("sessions", "Open sessions of legacy clients.", load.sessions),
            ("loop_lag_seconds", "The latest that the event loop was in the last 15 s.", load.loop_lag),
            ("ready", "1 if /ready returns 200.", float(load.is_ready)),
        ):
            yield GaugeMetricFamily(f"mcp_optimizer_{metric}", text, value)


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_MOST_SESSIONS = 10_000


_KIND, _SERVER, _OUTCOME = range(3)
_Labels = tuple[EventKind, str, Outcome]
"""A kind, the server of a call, and an outcome."""


class _Tally:
    """Counts the events with the same labels; kept simple, because every call adds to one."""

    __slots__ = ("counts", "seconds", "tokens")

    def __init__(self) -> None:
        self.counts = [0] * (len(_SECONDS) + 1)
        """The counts by duration."""
        self.seconds = 0.0
        self.tokens = 0

    def count(self, seconds: float, tokens: int) -> None:
        self.counts[bisect_left(_SECONDS, seconds)] += 1
        self.seconds += seconds
        self.tokens += tokens

    def add(self, other: _Tally) -> None:
        self.counts = list(map(operator.add, self.counts, other.counts))
        self.seconds += other.seconds
        self.tokens += other.tokens

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as Prometheus expects them."""
        bounds = [*(str(float(bound)) for bound in _SECONDS), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class Meters(Collector):
    """All metrics of one gateway, in their own registry. `take` is a listener of the recorder."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        recorder: Recorder,
        assumptions: Callable[[], Assumptions],
        refused: Callable[[], Mapping[str, int]] = dict,
        load: Collector | None = None,
    ) -> None:
        """`refused` returns the number of refused client messages by reason; `load` collects the process's load."""
        self._snapshot = snapshot
        self._refused = refused
        self._savings = RunningSavings(assumptions, _MOST_SESSIONS)
        self._tallies: dict[_Labels, _Tally] = {}
        self._cut = self._cached = self._truncated = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._registry.register(_State(snapshot, recorder, lambda: assumptions().own_tokens))
        if load is not None:
            self._registry.register(load)
        # Processor time, memory and open files, under the names that monitors expect.
        ProcessCollector(registry=self._registry)

    def take(self, event: Event) -> None:
        """Counts an event."""
        tally = self._tallies.get((event.kind, event.server, event.outcome)) or self._tally(event)
        tally.count(event.milliseconds / 1_000, event.tokens)
        self._cut += event.full_tokens - event.tokens
        self._cached += event.cached
        self._truncated += event.truncated
        self._savings.take(event)

    def _tally(self, event: Event) -> _Tally:
        """The tally of an event, created if its labels are new."""
        server = ""
        if event.kind is EventKind.CALL:
            # Only servers in the server file: a label that a client could choose would have unlimited values.
            server = event.server if event.server in self._snapshot().states else "none"
        return self._tallies.setdefault((event.kind, server, event.outcome), _Tally())

    def _by(self, *labels: int, kind: EventKind | None = None) -> dict[tuple[str, ...], _Tally]:
        """All tallies, or those of one kind, grouped by some of their labels."""
        found: defaultdict[tuple[str, ...], _Tally] = defaultdict(_Tally)
        for known, tally in list(self._tallies.items()):
            if kind is None or kind is known[0]:
                found[tuple(str(known[label]) for label in labels)].add(tally)
        return found

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics in the requested format, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        events = CounterMetricFamily(
            "mcp_optimizer_events", "Finds, calls, scripts, lists, reads and loads.", labels=["kind", "outcome"]
        )
        for labels, tally in self._by(_KIND, _OUTCOME).items():
            events.add_metric(labels, sum(tally.counts))
        calls = CounterMetricFamily("mcp_optimizer_calls", "Tool calls, by server.", labels=["server", "outcome"])
        for labels, tally in self._by(_SERVER, _OUTCOME, kind=EventKind.CALL).items():
            calls.add_metric(labels, sum(tally.counts))
        by_kind = self._by(_KIND)
        sent = CounterMetricFamily("mcp_optimizer_tokens_sent", "Tokens sent to clients.", labels=["kind"])
        for labels, tally in by_kind.items():
            sent.add_metric(labels, tally.tokens)
        seconds = HistogramMetricFamily("mcp_optimizer_duration_seconds", "Time to a reply.", labels=["kind"])
        for labels, tally in by_kind.items():
            seconds.add_metric(labels, tally.buckets, tally.seconds)
        by_server = HistogramMetricFamily(
            "mcp_optimizer_call_duration_seconds", "Time to the result of a call, by server.", labels=["server"]
        )
        for labels, tally in self._by(_SERVER, kind=EventKind.CALL).items():
            by_server.add_metric(labels, tally.buckets, tally.seconds)
        read = CounterMetricFamily(
            "mcp_optimizer_prompt_tokens",
            "Tokens that models read, uncached, with the gateway and, calculated, without it.",
            labels=["gateway"],
        )
        with_us, without = self._savings.highest
        read.add_metric(["with"], with_us)
        read.add_metric(["without"], without)
        refused = CounterMetricFamily(
            "mcp_optimizer_refused_messages", "Client messages that were refused.", labels=["reason"]
        )
        for reason, count in dict(self._refused()).items():
            refused.add_metric([reason], count)
        yield from (events, calls, sent, seconds, by_server, read, refused)
        yield CounterMetricFamily("mcp_optimizer_tokens_cut", "Tokens that limits held back.", self._cut)
        yield CounterMetricFamily("mcp_optimizer_cached_results", "Results served from the cache.", self._cached)
        yield CounterMetricFamily("mcp_optimizer_truncated_results", "Results that were cut.", self._truncated)


class _State(Collector):
    """The current state: read on request, not stored."""

    def __init__(self, snapshot: Callable[[], Snapshot], recorder: Recorder, own_tokens: Callable[[], int]) -> None:
        self._snapshot = snapshot
        self._recorder = recorder
        self._own_tokens = own_tokens

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        tools = GaugeMetricFamily("mcp_optimizer_tools", "Tools of running servers.", labels=["server"])
        tokens = GaugeMetricFamily(
            "mcp_optimizer_definition_tokens", "Tokens of the definitions of running servers.", labels=["server"]
        )
        states = GaugeMetricFamily(
            "mcp_optimizer_server_state", "1 for a server's current state.", labels=["server", "state"]
        )
        restarts = CounterMetricFamily("mcp_optimizer_server_restarts", "Restarts of a server.", labels=["server"])
        own = by_server(weights(snapshot))
        for name, state in snapshot.states.items():
            tools.add_metric([name], len(own.get(name, ())))
            tokens.add_metric([name], total(own.get(name, ())))
            restarts.add_metric([name], state.restarts)
            for status in ServerStatus:
                states.add_metric([name, status.value], float(state.status is status))
        yield from (tools, tokens, states, restarts)
        yield GaugeMetricFamily(
            "mcp_optimizer_baseline_tokens",
            "Tokens every prompt would carry without the gateway, of a client that sends all definitions.",
            snapshot.sent_tokens,
        )
        yield GaugeMetricFamily(
            "mcp_optimizer_own_tokens", "Tokens every prompt carries with the gateway.", self._own_tokens()
        )
        recorder = self._recorder
        yield GaugeMetricFamily("mcp_optimizer_history_queue", "Events waiting to be written.", recorder.waiting)
        yield CounterMetricFamily("mcp_optimizer_history_written", "Events written.", recorder.written)
        yield CounterMetricFamily("mcp_optimizer_history_dropped", "Events lost.", recorder.dropped)
