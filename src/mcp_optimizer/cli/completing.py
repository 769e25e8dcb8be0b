"""Names of servers and tools for the shell's completion: from a running gateway or the server file; starts nothing.

Never fails and never waits long: whoever presses Tab wants names or nothing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.settings import Settings, load_settings

if TYPE_CHECKING:
    from mcp_optimizer.control.asking import RunningGateway

_SECONDS = 0.25
_MOST = 1_000
_PLAIN = re.compile(r"[A-Za-z0-9_.@/-]{1,200}", re.ASCII)
"""What a shell reads as a word. Some evaluate what they are offered, and servers choose the names of their tools."""


def complete_tool(ctx: typer.Context, incomplete: str) -> list[str]:
    """The tools of a running gateway; without one, nobody knows them."""
    from mcp_optimizer.control.requests import ToolsRequest

    with contextlib.suppress(OptimizerError, OSError, ValueError, KeyError):
        for gateway in _running(_settings(ctx)):
            rows = gateway.ask(ToolsRequest(), _SECONDS)["value"]
            return _offered((row["name"] for row in rows), incomplete)
    return []


def complete_server(ctx: typer.Context, incomplete: str) -> list[str]:
    """The servers of the server file."""
    with contextlib.suppress(OptimizerError, OSError, ValueError):
        settings = _settings(ctx)
        if settings.demo:
            from mcp_optimizer.demo import demo_server_commands

            return _offered(demo_server_commands(), incomplete)
        from mcp_optimizer.upstream.config import read_server_file

        specs = read_server_file(settings.server_file, {}, check=settings.check_server_file)
        return _offered((spec.name for spec in specs), incomplete)
    return []


def _settings(ctx: typer.Context) -> Settings:
    given = {name: value for name, value in ctx.params.items() if name in Settings.model_fields}
    return load_settings(given, settings_file=ctx.params.get("settings_file"))


def _running(settings: Settings) -> list[RunningGateway]:
    from mcp_optimizer.control.asking import running_gateways

    return [gateway for gateway in running_gateways(settings) if gateway.is_same_version]


def _offered(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name))[:_MOST]
