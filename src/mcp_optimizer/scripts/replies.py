"""A script's result as the model reads it, and what it reads of a script that failed. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mcp_optimizer.limits import Limits
from mcp_optimizer.scripts.checked import Checked
from mcp_optimizer.scripts.inner_calls import InnerCalls, TooManyInnerCalls
from mcp_optimizer.scripts.unsupported import told

CUT = "[More was printed than is kept: the end is missing.]"
_OF_THE_SCRIPT = "<python-input-1>"
_SYNCHRONOUS = re.compile(r"external function '\w+' cannot suspend in this synchronous context")
_MEMORY = re.compile("MemoryError: (memory limit exceeded|the worker exceeded its memory limit)")


def reply(printed: str, value: str, *, is_cut: bool = False) -> dict[str, Any]:
    """What was printed, then the value of the last expression, as one text. `value` is as the worker shows it."""
    # First, because the end of a long text is read last, or never.
    shown = [CUT if is_cut else "", printed.rstrip("\n"), value[1:]]
    text = "\n".join(part for part in shown if part)
    return {"content": [{"type": "text", "text": text or "Done; nothing was printed or returned."}], "isError": False}


def failure(reasons: Sequence[str], printed: str, calls: InnerCalls) -> dict[str, Any]:
    """Why a script ended, what it did until then, and what it had printed."""
    parts = [*reasons, calls.summary()]
    if printed:
        parts.append(f"It had printed:\n{printed.rstrip()}")
    return {"content": [{"type": "text", "text": "\n".join(parts)}], "isError": True}


def reason_of(error: BaseException, limits: Limits) -> str:
    """Why a script ended, with its line; of a long text both ends."""
    kind, message = type(error).__name__, str(error)
    if isinstance(error, TimeoutError):
        return f"The script was ended after {limits.script_seconds:g} seconds."
    if isinstance(error, TooManyInnerCalls):
        return f"The script was ended. {error}"
    if kind == "MontyCrashedError" or message.startswith("TimeoutError: feed time limit"):
        return f"The script was ended: it computed for more than {limits.script_cpu_seconds:g} seconds."
    if _MEMORY.match(message):
        return f"The script was ended: its values need more than {limits.script_memory:,} bytes."
    # In the worker, a tool's error is what it can raise.
    message = told(re.sub("^RuntimeError: ", "ToolError: ", message))
    message = _SYNCHRONOUS.sub("a tool cannot be called here; call it in a loop or a comprehension", message)
    line = _line(error)
    return shortened(f"line {line}: {message}" if line else message, limits.script_error)


def remarks_on(error: BaseException, checked: Checked) -> list[str]:
    """What the check of a script had seen that may explain how it ended."""
    return checked.remarks(_line(error), is_of_a_tool=str(error).startswith("RuntimeError: "))


def _line(error: BaseException) -> int | None:
    """The innermost line of the script itself."""
    traceback = getattr(error, "traceback", None)
    frames = traceback() if callable(traceback) else []
    own = [frame.line for frame in frames if frame.filename == _OF_THE_SCRIPT]
    return own[-1] if own else None


def shortened(text: str, longest: int) -> str:
    """Both ends of a text that is too long."""
    half = (longest - 3) // 2
    return text if len(text) <= longest else f"{text[:half]} … {text[-half:]}"
