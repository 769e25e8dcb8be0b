"""`/metrics`: the metrics for Prometheus, behind the guard."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.metrics.prometheus import Meters


def metrics_route(meters: Meters, guard: Guard) -> Route:
    async def metrics(request: Request) -> Response:
        # In a thread, because the first request may have to load the tokenizer.
        content, kind = await asyncio.to_thread(meters.exposition, request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": kind})

    return Route("/metrics", guard.data(metrics))
