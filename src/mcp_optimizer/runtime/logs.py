"""Logs to stderr: lines for people on a terminal, JSON objects for programs. Only our own messages.

The SDK's log lines quote messages, including arguments and secrets, so they are dropped. The text of an exception may
quote its input, so only its type and location are logged.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

from mcp_optimizer.runtime.terminal_text import printable

EXTRA = "fields"
"""The key for additional values in a log call: `logger.info(..., extra={"fields": {...}})`."""

_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def configure_logging(level: str, form: str = "auto", stream: TextIO | None = None) -> None:
    """`form` is auto, human or json; auto means human on a terminal."""
    out = stream or sys.stderr
    is_human = form == "human" or (form == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(HumanFormatter() if is_human else JsonFormatter())
    ours = logging.getLogger("mcp_optimizer")
    for before in [*ours.handlers]:
        ours.removeHandler(before)
    ours.addHandler(handler)
    ours.propagate = False
    ours.setLevel(level.upper())
    others = logging.getLogger()
    others.setLevel(logging.CRITICAL)
    if not others.handlers:
        # Without a handler, Python prints warnings of libraries that set their own level, such as SQLAlchemy.
        others.addHandler(logging.NullHandler())


def first_of(error: BaseException) -> BaseException:
    """The first error in a group of errors, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def frames(error: BaseException) -> str:
    """Where an error was raised, without its text, which may quote data from a server or client."""
    first = first_of(error)
    return "".join([*traceback.format_tb(first.__traceback__), type(first).__name__])


class HumanFormatter(logging.Formatter):
    """Time, level and message on one line, even if a server's name contains line breaks."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging calls
        return raised(ei)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, EXTRA, {}),
        }
        if record.exc_info:
            values["exception"] = raised(record.exc_info)
        return json.dumps(values, ensure_ascii=True, default=str)


def raised(ei: _Raised) -> str:
    """The type and location of an exception, without its text."""
    kind, _, where = ei
    lines = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in traceback.extract_tb(where)]
    return "\n".join([*lines, kind.__name__ if kind is not None else ""])
