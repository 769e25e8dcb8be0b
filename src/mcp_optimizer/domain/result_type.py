"""The type of a modern result: complete, input required, or a task. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INPUT_REQUIRED = "input_required"

TASK = "task"

ANSWERS = ("inputResponses", "requestState")
"""The keys by which the client's next request provides the input."""


def is_interim(result: Mapping[str, Any]) -> bool:
    """Whether a result stands for one that comes later: the server needs input, or works on a task."""
    return result.get("resultType") in (INPUT_REQUIRED, TASK)


def is_input_required(result: Mapping[str, Any]) -> bool:
    """Whether the server needs more input before there is a result."""
    return result.get("resultType") == INPUT_REQUIRED


def is_task(result: Mapping[str, Any]) -> bool:
    """Whether a server answered a call with a task, whose result comes later."""
    return result.get("resultType") == TASK
