"""Servers that a program gives as a dictionary, read with the same checks and messages as a server file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.upstream.config import specs_of
from mcp_optimizer.upstream.spec import ServerSpec
from mcp_optimizer.upstream.variables import LookUp, nothing_stored

_WHAT_TO_CONNECT = ("command", "url", "httpUrl", "serverUrl")
_GIVEN = Path("the given configuration")
"""What messages call a configuration without a file; its folder is the working directory."""


def given_servers(
    given: Mapping[str, Any], environment: Mapping[str, str], look_up: LookUp = nothing_stored
) -> list[ServerSpec]:
    """The servers of a configuration that a program gives: what a server file contains, or the servers by name.

    Relative folders are relative to the working directory.
    """
    try:
        # Exactly what a file could say, and nothing that changes later.
        document = json.loads(json.dumps(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{_GIVEN} cannot be written as JSON: {error}.") from None
    return specs_of(document if _is_document(document) else {"mcpServers": document}, _GIVEN, environment, look_up)


def _is_document(given: Mapping[str, Any]) -> bool:
    """Whether it is what a server file contains; a server itself may be called "servers" or "mcp"."""
    return any(key in given and not _is_entry(given[key]) for key in ("mcpServers", "servers", "mcp"))


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(value.get(key), str) for key in _WHAT_TO_CONNECT)
