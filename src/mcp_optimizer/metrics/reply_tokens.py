"""What a reply says of its own tokens, and what else of it has to be counted. Pure; called by the accounts.

A server may write anything under our names, so nothing here is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.gateway.error_texts import for_model

_MOST_TOKENS = 10**12

_Default = TypeVar("_Default")


def stated(part: Mapping[str, Any], name: str, default: _Default) -> int | _Default:
    """A plausible number of tokens, whoever wrote it."""
    number = part.get(name)
    return number if isinstance(number, int) and 0 <= number <= _MOST_TOKENS else default


def texts_read(result: Mapping[str, Any] | None, error: OptimizerError | None) -> list[str]:
    """What a model reads of a reply."""
    if result is None:
        return [for_model(error)] if error else []
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    return [str(block.get("text", "")) for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
