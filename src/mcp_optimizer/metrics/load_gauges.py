"""How busy this process is, for whoever decides how many of them there should be. Read on request, not stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True)
class Load:
    """What is looked at."""

    requests: int
    """MCP requests over HTTP in progress."""
    calls: int
    """Calls that servers work on."""
    waiting: int
    """Calls that wait for a place at their server."""
    sessions: int
    """Open sessions of legacy clients."""
    loop_lag: float
    """Seconds that the event loop was late, at most, in the last 15 seconds."""
    is_ready: bool


@dataclass(frozen=True)
class GatewayName:
    """Which of several gateways this is."""

    host: str
    pid: int
    worker: str
    """Such as 2/3 of `serve --workers`; empty if it is alone."""
    version: str

    @property
    def shown(self) -> str:
        """For people: the machine, the process, and the worker, if there are several."""
        return f"{self.host}, process {self.pid}" + (f", worker {self.worker}" if self.worker else "")


class LoadGauges(Collector):
    """Gauges for autoscaling."""

    def __init__(self, load: Callable[[], Load], name: GatewayName) -> None:
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
