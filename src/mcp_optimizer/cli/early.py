"""Whether a gateway on stdio answers its client while it is being loaded, and with what.

Called by `serve` before the heavy imports, so it imports nothing that takes time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp_optimizer import __version__
from mcp_optimizer.domain.own_tools import own_tools, splits_calls
from mcp_optimizer.domain.script_mode import ScriptMode
from mcp_optimizer.known_clients.table import habits_of
from mcp_optimizer.serving.early_answers import EarlyAnswers, FirstRequests
from mcp_optimizer.serving.pipes import has_pipes, own_pipes
from mcp_optimizer.serving.signpost_file import read_signpost
from mcp_optimizer.settings import Settings


def first_requests(settings: Settings) -> FirstRequests:
    """What is answered in the same way whatever the servers are."""
    scripts = ScriptMode(settings.scripts)

    def tools_of(client: str) -> tuple[dict[str, Any], ...]:
        return own_tools(split_calls=splits_calls(habits_of(client), settings.split_calls), scripts=scripts)

    signpost = None if settings.mode == "transparent" else read_signpost(settings)[0]
    known = tools_of if lists_only_own_tools(settings) else None
    return FirstRequests(known, __version__, settings.limits, signpost, is_native=settings.mode == "native")


def lists_only_own_tools(settings: Settings) -> bool:
    """Whether every client gets the same tools and instructions, whatever the servers offer."""
    return settings.mode == "search" and not settings.tool_profile and not settings.client_profiles


@asynccontextmanager
async def answering_early(settings: Settings) -> AsyncIterator[EarlyAnswers | None]:
    """Answer the client's first requests from now on; None: the server answers all of them."""
    if not has_pipes():
        yield None
        return
    pipes = await own_pipes()
    early = EarlyAnswers(pipes, first_requests(settings))
    try:
        yield early
    finally:
        await early.stop()
        pipes.close()
