"""Which servers the settings name: those of a server file, or of the demo. Starts nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mcp_optimizer.app.setting_values import check_driver, items
from mcp_optimizer.config.serverfile.parser import given_servers, parse_server_file, read_server_file
from mcp_optimizer.config.serverfile.recognised_servers import SAME_ADDRESS, is_own_address
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.config.serverfile.variables import LookUp, SecretValues
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.config.trusted_files import SERVER_FILE, folder_file
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.upstream.transports.processes import DEEPEST, depth
from mcp_optimizer_demo import demo_server_commands


def server_specs(settings: Settings, given: Mapping[str, Any] | None = None) -> list[ServerSpec]:
    """The servers in the settings, or those of a configuration that is given instead of a file."""
    if (deep := depth(os.environ)) > DEEPEST:
        raise ConfigurationError(
            f"This gateway runs inside {deep} other gateways, each started by the one before: most likely a server "
            "file starts the gateway itself. Remove that entry, or give it another --config."
        )
    look_up = partial(_stored_secrets, settings)
    if given is not None:
        specs = given_servers(given, os.environ, look_up)
    else:
        specs = _demo_specs() if settings.demo else _of_file(settings, look_up)
    specs = _usable(specs, settings)
    wanted, known = items(settings.servers), [spec.name for spec in specs]
    if unknown := [name for name in wanted if name not in known]:
        raise ConfigurationError(f"There is no server {unknown[0]!r}. Servers: {', '.join(known) or 'none'}.")
    return _chosen(specs, settings)


def _of_file(settings: Settings, look_up: LookUp) -> list[ServerSpec]:
    path = settings.server_file
    here = folder_file(SERVER_FILE, path) if settings.config is None and not path.exists() else None
    if here is not None:
        raise ConfigurationError(
            f"{here.path} is not used: {here.problem}; and there is no server file of your own at {path}. Nothing was "
            f"started. Look at it, then: mcp-optimizer folder trust, or --config {here.path.name}; or make your own: "
            "mcp-optimizer import, mcp-optimizer init."
        )
    return read_server_file(path, os.environ, look_up, settings.check_server_file)


def changed_specs(settings: Settings, path: Path | None, text: str) -> list[ServerSpec]:
    """The servers in the settings, given the current content of their file; without a path, those of the demo.

    A server that the settings choose may no longer exist.
    """
    look_up = partial(_stored_secrets, settings)
    specs = _demo_specs() if path is None else parse_server_file(text, path, os.environ, look_up)
    return _chosen(_usable(specs, settings), settings)


def _chosen(specs: list[ServerSpec], settings: Settings) -> list[ServerSpec]:
    wanted = items(settings.servers)
    return [spec for spec in specs if spec.name in wanted] if wanted else specs


_NOBODY_IS_KNOWN = (
    "it acts with values of each caller (${caller.email} and the like), and only a gateway over HTTP knows its "
    "callers: serve with --http"
)

_NO_TOKENS = (
    "it exchanges the token of each caller, and only callers of a gateway over HTTP have one: serve with --http"
)
_NO_ISSUER = (
    "it exchanges the token of each caller, and callers come without tokens: name their issuer as [[token_issuers]] in "
    "the settings"
)


def _usable(specs: list[ServerSpec], settings: Settings) -> list[ServerSpec]:
    """Adds a problem to a valid entry that the gateway cannot use."""
    if settings.http is not None:
        host, port = settings.http_address
        ours = {spec.name for spec in specs if spec.url and is_own_address(spec.url, host, port)}
        specs = [replace(spec, problem=SAME_ADDRESS) if spec.name in ours else spec for spec in specs]
        if not settings.token_issuers:
            specs = [replace(spec, problem=_NO_ISSUER) if spec.auth.exchange else spec for spec in specs]
    else:
        specs = [replace(spec, problem=_NOBODY_IS_KNOWN) if spec.by_caller else spec for spec in specs]
        specs = [replace(spec, problem=_NO_TOKENS) if spec.auth.exchange else spec for spec in specs]
    return specs


def _stored_secrets(settings: Settings, names: Collection[str]) -> SecretValues:
    """The secrets that a server file uses. If the database cannot be used, only the servers that need them fail."""
    place = settings.database_place
    if place is None:
        return SecretValues(problems=dict.fromkeys(names, "secrets are in the database, and --database none has none"))
    check_driver(settings)
    # Most files use no secrets, and cryptography is slow to import.
    from mcp_optimizer.identity.secrets import opened_secrets

    async def read() -> SecretValues:
        async with opened_secrets(place, os.environ) as secrets:
            return await secrets.values(names)

    try:
        # In a thread with its own event loop, because the caller may be running in one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, read()).result()
    except OptimizerError as error:
        return SecretValues(problems=dict.fromkeys(names, str(error)))


def _demo_specs() -> list[ServerSpec]:
    return [
        ServerSpec(name=name, transport=Transport.STDIO, command=command, args=tuple(args))
        for name, (command, *args) in demo_server_commands().items()
    ]
