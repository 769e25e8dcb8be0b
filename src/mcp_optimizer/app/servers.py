"""Which servers the settings name: those of a server file, or of the demo. Starts nothing."""

from __future__ import annotations

import os
from dataclasses import replace

from mcp_optimizer.app.options import items
from mcp_optimizer.demo import demo_server_commands
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.settings import Settings
from mcp_optimizer.upstream.config import read_server_file
from mcp_optimizer.upstream.itself import SAME_ADDRESS, is_own_address
from mcp_optimizer.upstream.processes import DEEPEST, depth
from mcp_optimizer.upstream.spec import ServerSpec, Transport


def server_specs(settings: Settings) -> list[ServerSpec]:
    """The servers in the settings."""
    if (deep := depth(os.environ)) > DEEPEST:
        raise ConfigurationError(
            f"This gateway runs inside of {deep} others, each started by the one before: most likely a server file "
            "starts the gateway itself. Remove that entry, or give it another --config."
        )
    specs = _demo_specs() if settings.demo else read_server_file(settings.server_file, os.environ)
    if settings.http is not None:
        host, port = settings.http_address
        ours = {spec.name for spec in specs if spec.url and is_own_address(spec.url, host, port)}
        specs = [replace(spec, problem=SAME_ADDRESS) if spec.name in ours else spec for spec in specs]
    wanted, known = items(settings.servers), [spec.name for spec in specs]
    if unknown := [name for name in wanted if name not in known]:
        raise ConfigurationError(f"There is no server {unknown[0]!r}. Servers: {', '.join(known) or 'none'}.")
    return [spec for spec in specs if spec.name in wanted] if wanted else specs


def _demo_specs() -> list[ServerSpec]:
    return [
        ServerSpec(name=name, transport=Transport.STDIO, command=command, args=tuple(args))
        for name, (command, *args) in demo_server_commands().items()
    ]
