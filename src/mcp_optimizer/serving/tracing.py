"""OpenTelemetry traces, if a tracer provider is set. Exporters are loaded only if they are configured, by `serve`.

The MCP SDK creates the spans: one for each client request, under the trace context in its `_meta`, and one for each
request to a server, which gets the context too. Spans for questions to clients are created here. This module exports
them without any text that may quote arguments or results.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp_types import RequestId
from opentelemetry import propagate, trace

from mcp_optimizer.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

KEPT = frozenset({
    "mcp.method.name",
    "mcp.protocol.version",
    "gen_ai.operation.name",
    "gen_ai.tool.name",
    "gen_ai.prompt.name",
    "jsonrpc.request.id",
    "error.type",
    "rpc.response.status_code",
})  # fmt: skip
"""The attributes that are exported: names and codes."""


def is_traced() -> bool:
    """Whether spans are collected, which may start at any time. The documented `get_tracer_provider` reads the
    environment each time, which takes twenty times as long.
    """
    return getattr(trace, "_TRACER_PROVIDER", True) is not None


class WhenTraced:
    """A middleware that creates spans, bypassed while none are collected: creating them would have no effect."""

    def __init__(self, middleware: ServerMiddleware[Any]) -> None:
        self._middleware = middleware

    def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Awaitable[HandlerResult]:
        # Not a coroutine of its own: most calls only pass here.
        return self._middleware(ctx, call_next) if is_traced() else call_next(ctx)


@contextmanager
def asking(method: str, params: Mapping[str, Any] | None, number: RequestId) -> Iterator[Mapping[str, Any] | None]:
    """The span of a question to a client; yields its parameters, with the trace context if spans are collected."""
    if not is_traced():
        yield params
        return
    attributes = {"mcp.method.name": method, "jsonrpc.request.id": str(number)}
    tracer = trace.get_tracer("mcp-optimizer")
    with tracer.start_as_current_span(f"MCP send {method}", kind=trace.SpanKind.CLIENT, attributes=attributes):
        meta: dict[str, Any] = dict((params or {}).get("_meta") or {})
        propagate.inject(meta)
        yield {**(params or {}), "_meta": meta} if meta else params


def start_tracing(endpoint: str, version: str) -> TracerProvider:
    """Send traces to an OTLP/HTTP endpoint from now on."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise ConfigurationError(
            "Traces need more packages: pip install 'mcp-optimizer-gateway[otel]', or leave otlp_endpoint unset."
        ) from None
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import set_tracer_provider

    address = endpoint.rstrip("/")
    address = address if address.endswith("/v1/traces") else f"{address}/v1/traces"
    provider = provider_to(OTLPSpanExporter(endpoint=address), version, BatchSpanProcessor)
    set_tracer_provider(provider)
    return provider


def provider_to(exporter: SpanExporter, version: str, processor: type) -> TracerProvider:
    """A provider that exports spans without texts that may quote a user's data."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import Status

    class Careful(SpanExporter):
        """Drops error messages and all attributes that are not known to be harmless."""

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return exporter.export([_careful(span) for span in spans])

        def shutdown(self) -> None:
            exporter.shutdown()

    def _careful(span: ReadableSpan) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=span.get_span_context(),
            parent=span.parent,
            resource=span.resource,
            attributes={key: value for key, value in (span.attributes or {}).items() if key in KEPT},
            kind=span.kind,
            instrumentation_scope=span.instrumentation_scope,
            status=Status(span.status.status_code),
            start_time=span.start_time,
            end_time=span.end_time,
        )

    provider = TracerProvider(resource=Resource.create({"service.name": "mcp-optimizer", "service.version": version}))
    provider.add_span_processor(processor(Careful()))
    return provider
