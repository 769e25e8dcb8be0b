"""The type of a modern result: complete, or input required. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INPUT_REQUIRED = "input_required"

ANSWERS = ("inputResponses", "requestState")
"""The keys by which the client's next request provides the input."""


def is_input_required(result: Mapping[str, Any]) -> bool:
    """Whether the server needs more input before there is a result."""
    return result.get("resultType") == INPUT_REQUIRED
