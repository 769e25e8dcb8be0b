"""The type of a result in the newer era: whether it is one already, or asks for more first. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INPUT_REQUIRED = "input_required"

ANSWERS = ("inputResponses", "requestState")
"""What a client's next request carries then."""


def is_input_required(result: Mapping[str, Any]) -> bool:
    """Whether it is no result yet, because the server has to know more."""
    return result.get("resultType") == INPUT_REQUIRED
