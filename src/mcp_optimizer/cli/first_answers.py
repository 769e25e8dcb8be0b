"""What a gateway on stdio answers first, and the imports that take long. Nothing slow is imported at the top."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mcp_optimizer import __version__
from mcp_optimizer.config.known_clients.habits import habits_of
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.extensions import WHILE_STARTING
from mcp_optimizer.domain.own_tools import ScriptMode, tools_for
from mcp_optimizer.runtime.lazy import quick_imports
from mcp_optimizer.serving.early_answers import FirstRequests
from mcp_optimizer.serving.signpost_file import read_signpost


def first_requests(settings: Settings) -> FirstRequests:
    """Answers that do not depend on the servers."""
    scripts = ScriptMode(settings.scripts)

    def tools_of(client: str) -> tuple[dict[str, Any], ...]:
        return tools_for(habits_of(client), settings.split_calls, scripts=scripts)

    signpost = None if settings.mode == "transparent" else read_signpost(settings)[0]
    known = tools_of if lists_only_own_tools(settings) else None
    is_native = settings.mode == "native"
    return FirstRequests(known, __version__, settings.limits, signpost, is_native=is_native, extensions=WHILE_STARTING)


def lists_only_own_tools(settings: Settings) -> bool:
    """Whether every client gets the same tools and instructions, whatever the servers offer."""
    return settings.mode == "search" and not settings.tool_profile and not settings.client_profiles


def load_stdio() -> None:
    """Import what serves a client on stdio."""
    with quick_imports():
        import_module("mcp_optimizer.app.optimizer")
        import_module("mcp_optimizer.serving.stdio")
