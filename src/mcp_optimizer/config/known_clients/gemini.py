"""Gemini CLI and its fork, Qwen Code: `$X` is a variable, `httpUrl` is HTTP, and a list switches servers off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_optimizer.config.known_clients.entry_spelling import (
    ASKING,
    ELSEWHERE,
    LEFT_OUT,
    SEARCHED,
    Entry,
    EntryReading,
    EntryWriting,
    OurGateway,
    OwnCommands,
    VariableSpelling,
)
from mcp_optimizer.config.known_clients.program import Base, ClientProgram, KnownFile, SwitchOff
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry
from mcp_optimizer.runtime.patterns import regex

_VARIABLE = regex(r"\$(?:([A-Za-z_]\w*)|\{(?:env:)?([A-Za-z_]\w*)\})")
_REFERENCE = "$%s"


def _replaced(text: str, _values: Mapping[str, str], _where: str) -> str:
    return _VARIABLE.sub(lambda match: f"${{{match.group(1) or match.group(2)}}}", text)


def _shape(entry: Entry) -> Entry:
    """`httpUrl` is streamable HTTP, and `url` without a type is SSE."""
    if "tcp" in entry:
        raise UnusableEntry('"tcp" is a WebSocket, which is not supported; use a "url"')
    if "httpUrl" in entry:
        return {"type": "http"} | {key: value for key, value in entry.items() if key not in ("type", "url")}
    return {"type": "sse", **entry} if "url" in entry and "command" not in entry else dict(entry)


def _passed_on(variables: tuple[str, ...]) -> dict[str, Any]:
    return {"env": {name: _REFERENCE % name for name in variables}} if variables else {}


def _adding(name: str, _entry: Mapping[str, Any], gateway: OurGateway) -> list[str]:
    # It would store the values of variables and of a header, not the references.
    if gateway.variables or gateway.key_variable:
        return []
    begin = ["gemini", "mcp", "add", "--scope", "user"]
    if gateway.url:
        return [*begin, "--transport", "http", name, gateway.url]
    # Everything after the two dashes belongs to the server, even if it looks like an option.
    return [*begin, name, gateway.command, "--", *gateway.args]


_READING = EntryReading(
    VariableSpelling(_replaced, is_bare=True),
    _shape,
    left_out={**LEFT_OUT, "trust": ASKING, "extensionName": ELSEWHERE},
    in_milliseconds=True,
)
_WRITING = EntryWriting(url_key="httpUrl", reference=_REFERENCE, passed_on=_passed_on)

GEMINI = ClientProgram(
    "gemini",
    "Gemini CLI",
    (KnownFile(Base.HOME, ".gemini/settings.json"),),
    (".gemini/settings.json",),
    switch_off=SwitchOff.EXCLUDED,
    reading=_READING,
    writing=_WRITING,
    commands=OwnCommands(_adding, ("gemini", "mcp", "remove", "--scope", "user")),
)

QWEN = ClientProgram(
    "qwen",
    "Qwen Code",
    (KnownFile(Base.HOME, ".qwen/settings.json"),),
    (".qwen/settings.json",),
    switch_off=SwitchOff.EXCLUDED,
    reading=_READING._replace(left_out={**_READING.left_out, "alwaysLoadTools": SEARCHED}),
    writing=_WRITING._replace(switches={"alwaysLoadTools": True}),
)
