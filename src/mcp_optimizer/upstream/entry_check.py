"""Refuses a new entry of the server file that the gateway could not use. Called by whoever adds one; starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.upstream.config import parse_server_file
from mcp_optimizer.upstream.failure import FailureKind
from mcp_optimizer.upstream.file_edits import EMPTY, with_entry
from mcp_optimizer.upstream.variables import SecretValues


def refuse_unusable(name: str, entry: Mapping[str, Any], path: Path, environment: Mapping[str, str]) -> None:
    """Such as one that starts the gateway itself. Variables may be set later, and secrets count as stored."""
    used = {key: value for key, value in entry.items() if key != "disabled"}
    text = with_entry(EMPTY, name, used)
    [spec] = parse_server_file(text, path, environment, lambda names: SecretValues(dict.fromkeys(names, "x")))
    if spec.problem and spec.problem_kind is not FailureKind.VARIABLE:
        raise ConfigurationError(f"The server cannot be used: {spec.problem}.")
