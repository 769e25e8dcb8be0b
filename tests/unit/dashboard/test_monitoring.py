"""Numbers for Prometheus, logs and traces are correct and bounded, and contain no arguments or results."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.events import Event, EventKind, Outcome
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.metrics.prometheus import Meters
from mcp_optimizer.metrics.recorder import Recorder, log_event
from mcp_optimizer.metrics.savings import SILENCE, Assumptions, RunningSavings, prices_of, savings
from mcp_optimizer.metrics.usage import make_usage
from mcp_optimizer.runtime.logs import configure_logging
from mcp_optimizer.serving.relay.server import Relay
from mcp_optimizer.serving.server import build_server
from mcp_optimizer.serving.tracing import provider_to
from tests.e2e.raw_clients import LEGACY
from tests.unit.catalogs import RecordingPool, down, gateway_over, live_catalog, mcp_tool, running
from tests.unit.serving.pipe_client import pipe_client

CALL = Event(1.0, EventKind.CALL, "s", "claude", "git hub", "create_issue", 40, 100, 5_000, 250.0, True, True)
CALLED = "tools/call call_tool"
FIND = Event(0.5, EventKind.FIND, "s", "claude", "", "", 300, 300, 5_000, 3.0)


async def nowhere() -> None:
    return None


async def meters() -> Meters:
    catalog = await live_catalog(running("git hub", mcp_tool("create_issue")), down('odd "name"\n\\'))
    return Meters(lambda: catalog.snapshot, Recorder(nowhere), lambda: Assumptions(None, 346))


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


async def test_prometheus_own_parser_reads_every_number() -> None:
    counted = await meters()
    for event in (FIND, CALL, Event(2.0, EventKind.CALL, "s", outcome=Outcome.BAD_REQUEST, tokens=9, full_tokens=9)):
        counted.take(event)
    text = counted.exposition()[0].decode()
    found = samples(text)
    assert found[("mcp_optimizer_events_total", (("kind", "find"), ("outcome", "ok")))] == 1
    assert found[("mcp_optimizer_calls_total", (("outcome", "ok"), ("server", "git hub")))] == 1
    assert found[("mcp_optimizer_calls_total", (("outcome", "bad request"), ("server", "none")))] == 1
    assert found[("mcp_optimizer_tokens_sent_total", (("kind", "call"),))] == 49
    assert found[("mcp_optimizer_tokens_cut_total", ())] == 60
    assert found[("mcp_optimizer_duration_seconds_sum", (("kind", "call"),))] == 0.25
    assert found[("mcp_optimizer_server_state", (("server", "git hub"), ("state", "running")))] == 1
    assert found[("mcp_optimizer_server_state", (("server", 'odd "name"\n\\'), ("state", "failed")))] == 1
    assert found[("mcp_optimizer_own_tokens", ())] == 346
    assert found[("mcp_optimizer_history_queue", ())] == 0
    assert "create_issue" not in text
    assert "claude" not in text


async def test_the_newer_format_is_given_to_those_who_ask_for_it() -> None:
    counted = await meters()
    counted.take(CALL)
    content, kind = counted.exposition("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert list(open_metrics(content.decode()))  # type: ignore[no-untyped-call]


kinds = st.sampled_from([EventKind.FIND, EventKind.CALL, EventKind.LIST, EventKind.LOAD])
outcomes = st.sampled_from([Outcome.OK, Outcome.TIMEOUT, Outcome.BAD_REQUEST])
pauses = st.sampled_from([0.0, 1.0, SILENCE - 1, SILENCE, SILENCE + 1])
sizes = st.tuples(st.integers(0, 900), st.integers(0, 900), st.integers(0, 5_000))
parts_of_events = st.tuples(kinds, outcomes, sizes, st.sampled_from("abc"), pauses)
Part = tuple[EventKind, Outcome, tuple[int, int, int], str, float]


def history(parts: list[Part]) -> list[Event]:
    at = accumulate(part[-1] for part in parts)
    return [
        Event(moment, kind, session, tokens=sent, full_tokens=sent + cut, baseline_tokens=baseline, outcome=outcome)
        for moment, (kind, outcome, (sent, cut, baseline), session, _) in zip(at, parts, strict=True)
    ]


def counted_by(meters: Meters) -> tuple[float, float]:
    """The tokens that models read with the gateway, and without it, as Prometheus sees them."""
    found = samples(meters.exposition()[0].decode())
    with_us, without = (found["mcp_optimizer_prompt_tokens_total", (("gateway", way),)] for way in ("with", "without"))
    return with_us, without


@settings(deadline=None)
@given(st.lists(parts_of_events, max_size=12), st.sampled_from([None, 1, 5]))
def test_the_counters_of_prometheus_add_up_to_what_the_report_says(parts: list[Part], requests: int | None) -> None:
    events, assumptions = history(parts), Assumptions(requests, 346)
    counters = Meters(Snapshot, Recorder(nowhere), lambda: assumptions)
    with_us, without = 0, 0
    for number, event in enumerate(events, start=1):
        counters.take(event)
        told = savings(events[:number], assumptions)
        # The report falls when a list gets shorter. A counter must not, so it stays until the report catches up.
        with_us, without = max(with_us, told.with_us.tokens), max(without, told.without.tokens)
        assert counted_by(counters) == (with_us, without)


@given(st.lists(parts_of_events), st.sampled_from([None, 1, 5]))
def test_the_running_total_the_periods_and_the_report_are_one_arithmetic(
    parts: list[Part], requests: int | None
) -> None:
    events, assumptions = history(parts), Assumptions(requests, 346)
    running_sum = RunningSavings(lambda: assumptions)
    for event in events:
        running_sum.take(event)
    usage = make_usage(events, [], assumptions)
    assert running_sum.total == usage.savings.savings
    assert sum(row.with_us for row in usage.periods) == running_sum.total.with_us.tokens
    assert sum(row.without for row in usage.periods) == running_sum.total.without.tokens


async def test_a_server_that_is_in_no_server_file_is_no_label() -> None:
    counted = await meters()
    for number in range(1_000):
        counted.take(CALL._replace(server=f"made up {number}"))
    found = samples(counted.exposition()[0].decode())
    servers = {labels for name, labels in found if name == "mcp_optimizer_calls_total"}
    assert servers == {(("outcome", "ok"), ("server", "none"))}


# Logs


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    ours, root = logging.getLogger("mcp_optimizer"), logging.getLogger()
    before = (ours.handlers, ours.propagate, ours.level, root.level)
    stream = io.StringIO()
    yield stream
    ours.handlers, ours.propagate = before[0], before[1]
    ours.setLevel(before[2])
    root.setLevel(before[3])


def test_programs_get_json_and_events_with_fields(log: io.StringIO) -> None:
    configure_logging("info", "auto", log)
    log_event(CALL)
    logging.getLogger("mcp_optimizer.x").warning("Server %s is down", "a\nb")
    logging.getLogger("mcp.client").error("arguments: secret")
    event, warning = (json.loads(line) for line in log.getvalue().splitlines())
    assert (event["event"], event["tokens"], event["outcome"]) == ("call", 40, "ok")
    assert warning["level"] == "warning"
    assert warning["message"] == "Server a\nb is down"


def test_people_get_lines_without_what_could_take_over_their_terminal(log: io.StringIO) -> None:
    configure_logging("info", "human", log)
    logging.getLogger("mcp_optimizer.x").info("Server %s", "\u001b[2Jred\u202e")
    assert log.getvalue().endswith("INFO Server red\n")


@pytest.mark.parametrize("form", ["human", "json"])
def test_an_exception_is_logged_with_its_place_and_without_its_words(log: io.StringIO, form: str) -> None:
    configure_logging("info", form, log)
    try:
        int("the user's password")
    except ValueError:
        logging.getLogger("mcp_optimizer.x").exception("It failed")
    assert "ValueError" in log.getvalue()
    assert "test_monitoring.py" in log.getvalue()
    assert "password" not in log.getvalue()


# Traces


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    """One exporter for all tests, because a process has one tracer provider."""
    exporter = InMemorySpanExporter()
    trace.set_tracer_provider(provider_to(exporter, "1", SimpleSpanProcessor))
    return exporter


async def test_a_call_is_traced_under_the_context_that_its_request_carries(spans: InMemorySpanExporter) -> None:
    gateway = await gateway_over(running("github", mcp_tool("create_issue")))
    spans.clear()
    async with Client(build_server(gateway, "test", Relay(RecordingPool(), dict)), mode="legacy") as client:
        # The client sends the context of its span in `_meta`, as the protocol requires.
        with trace.get_tracer("test").start_as_current_span("the agent") as agent:
            await client.call_tool("call_tool", {"tool_name": "create_issue", "parameters": {"p": "secret"}})
            await client.call_tool("call_tool", {"tool_name": "secret", "parameters": {}})
    done = spans.get_finished_spans()
    asked, answered = ([s for s in done if s.name == name] for name in ("MCP send tools/call call_tool", CALLED))
    assert len(answered) == 2
    for sent, received in zip(asked, answered, strict=True):
        assert received.context.trace_id == agent.get_span_context().trace_id
        assert received.parent is not None
        assert received.parent.span_id == sent.context.span_id
        assert (received.attributes or {})["gen_ai.tool.name"] == "call_tool"
    assert answered[1].status.status_code is trace.StatusCode.ERROR
    assert all("secret" not in span.to_json() for span in done)


@pytest.mark.process
@pytest.mark.usefixtures("warm_start")
async def test_a_call_on_stdio_is_traced_too(spans: InMemorySpanExporter) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    async with pipe_client(LEGACY) as client:
        spans.clear()
        await client.ask(
            client.call(1, "test_simple_text", _meta={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"})
        )
    [answered] = [span for span in spans.get_finished_spans() if span.name == "tools/call test_simple_text"]
    assert f"{answered.context.trace_id:032x}" == trace_id


async def test_the_message_of_an_error_is_not_exported_with_its_span(spans: InMemorySpanExporter) -> None:
    spans.clear()
    attributes = {"http.header": "secret", "error.type": "ValueError"}
    work = trace.get_tracer("test").start_as_current_span("work", attributes=attributes)
    with pytest.raises(ValueError, match="password"), work:
        raise ValueError("the user's password")
    (done,) = spans.get_finished_spans()
    assert (done.attributes or {}) == {"error.type": "ValueError"}
    assert "password" not in done.to_json()
    assert "secret" not in done.to_json()


# Prices


@pytest.mark.slow
def test_a_model_has_prices_and_an_unknown_one_is_named() -> None:
    prices = prices_of("claude-sonnet-4-5")
    assert prices.cache_read < prices.input <= prices.cache_write
    assert prices_of("openai:gpt-4o").input > 0
    with pytest.raises(ConfigurationError, match="no-such-model"):
        prices_of("no-such-model")
