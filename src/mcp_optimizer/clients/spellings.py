"""How clients write variables, turned into our way: `${VAR}`, `${VAR:-default}`, `${secret:NAME}`, `${input:ID}`.

Pure; called by `entries` before it looks at keys. Variables are never looked up, so references stay references.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from mcp_optimizer.upstream.entry_values import UnusableEntry

_OURS = re.compile(r"\$\{([^}]{0,1000})\}")
_GEMINI = re.compile(r"\$(?:([A-Za-z_]\w*)|\{(?:env:)?([A-Za-z_]\w*)\})")
_OPENCODE = re.compile(r"\{(env|file):([^}]*)\}")
_CONTINUE = re.compile(r"\$\{\{\s*(?:secrets|inputs)\.([\w./-]+)\s*\}\}")
_DEEPEST = 20


class Spelling(StrEnum):
    """How a client writes variables."""

    OURS = "ours"
    EDITOR = "editor"
    """`${env:X}`, `${input:x}`, `${userHome}`, `${workspaceFolder}`."""
    GEMINI = "gemini"
    """`$X` and `${X}`."""
    OPENCODE = "opencode"
    """`{env:X}` and `{file:path}`."""
    CONTINUE = "continue"
    """`${{ secrets.X }}`."""
    NONE = "none"
    """Not at all."""


def spelled(value: Any, spelling: Spelling, values: Mapping[str, str], where: str = "") -> Any:
    """A value whose strings have variables in our way. Raises UnusableEntry where there is no such way."""
    return _walked(value, spelling, values, where, 0)


def _walked(value: Any, spelling: Spelling, values: Mapping[str, str], where: str, level: int) -> Any:
    if level > _DEEPEST:
        raise UnusableEntry("it is nested too deeply")
    if isinstance(value, str):
        return _text(value, spelling, values, where)
    if isinstance(value, list):
        return [_walked(item, spelling, values, where, level + 1) for item in value]
    if isinstance(value, dict):
        return {str(key): _walked(item, spelling, values, where or str(key), level + 1) for key, item in value.items()}
    return value


def _text(text: str, spelling: Spelling, values: Mapping[str, str], where: str) -> str:
    if spelling is Spelling.GEMINI:
        return _GEMINI.sub(lambda match: f"${{{match.group(1) or match.group(2)}}}", text)
    if spelling is Spelling.CONTINUE:
        return _CONTINUE.sub(lambda match: f"${{secret:{match.group(1)}}}", text)
    if spelling is Spelling.OPENCODE:
        return _OPENCODE.sub(lambda match: _of_opencode(match, where), text)
    if spelling in (Spelling.EDITOR, Spelling.OURS):
        return _OURS.sub(lambda match: _of_editor(match, values), text)
    return text


def _of_opencode(match: re.Match[str], where: str) -> str:
    if match.group(1) == "file":
        raise UnusableEntry(
            f'"{where}" takes a value from a file, which only opencode does; store it with `mcp-optimizer secret set '
            "NAME` and write ${secret:NAME}"
        )
    return f"${{{match.group(2).strip()}}}"


def _of_editor(match: re.Match[str], values: Mapping[str, str]) -> str:
    expression = match.group(1)
    return f"${{{expression[4:]}}}" if expression.startswith("env:") else values.get(expression, match.group())


def has_variable(value: Any) -> bool:
    """Whether something in a value looks like a variable of ours."""
    if isinstance(value, str):
        return _OURS.search(value) is not None
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(has_variable(item) for item in items)
