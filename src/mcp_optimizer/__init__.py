"""mcp-optimizer: one MCP endpoint in front of many MCP servers.

Exports only the public names, which a test pins. They load on first use, so importing the package or printing the
command line's help stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "AnthropicTools",
    "FindToolResponse",
    "McpTool",
    "OpenAITools",
    "Optimizer",
    "OptimizerError",
    "Settings",
    "TokenCounter",
    "TokenMetrics",
    "__version__",
    "load_settings",
]

_HOMES = {
    "AnthropicTools": "app.providers",
    "FindToolResponse": "serving.own_tools",
    "McpTool": "domain.tools",
    "OpenAITools": "app.providers",
    "Optimizer": "app.optimizer",
    "OptimizerError": "errors",
    "Settings": "config.settings",
    "TokenCounter": "token_counter",
    "TokenMetrics": "domain.tools",
    "load_settings": "config.settings",
}

if TYPE_CHECKING:
    from mcp_optimizer.app.optimizer import Optimizer
    from mcp_optimizer.app.providers import AnthropicTools, OpenAITools
    from mcp_optimizer.config.settings import Settings, load_settings
    from mcp_optimizer.domain.tools import McpTool, TokenMetrics
    from mcp_optimizer.errors import OptimizerError
    from mcp_optimizer.serving.own_tools import FindToolResponse
    from mcp_optimizer.token_counter import TokenCounter


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
