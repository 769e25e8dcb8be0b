"""How a command ends that fails: its message and exit code. The same in the command itself and in a gateway."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_optimizer.errors import ConfigurationError, GatewayFailure, InvalidArguments, OptimizerError, UnknownTool


@dataclass(frozen=True)
class FailedCommand:
    """What a person reads, and the exit code: 1 for a failure, 2 for wrong usage or configuration."""

    message: str
    code: int = 1


def failure_of(error: OptimizerError) -> FailedCommand:
    """An error for people; whatever it advises a model is replaced by a command."""
    if isinstance(error, GatewayFailure):
        return FailedCommand(str(error), error.code)
    if isinstance(error, ConfigurationError):
        return FailedCommand(str(error), 2)
    if isinstance(error, InvalidArguments):
        return FailedCommand(f"{error} `mcp-optimizer show {error.tool}` explains them.")
    if isinstance(error, UnknownTool):
        return FailedCommand(f"{error.without_advice} Search with `mcp-optimizer find`.")
    return FailedCommand(str(error))
