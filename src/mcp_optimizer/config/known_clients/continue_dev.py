"""Continue: a YAML file with a list of servers, earlier a JSON file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcp_optimizer.config.known_clients.entry_spelling import (
    LEFT_OUT,
    SHOWN,
    STARTING,
    Entry,
    EntryReading,
    EntryWriting,
    VariableSpelling,
    value_at,
)
from mcp_optimizer.config.known_clients.program import Base, ClientProgram, FileSigns, KnownFile
from mcp_optimizer.config.textfiles.checked_values import mapping, text_of
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.runtime.patterns import regex

_VARIABLE = regex(r"\$\{\{\s*(?:secrets|inputs)\.([\w./-]+)\s*\}\}")
_EARLIER = ("experimental", "modelContextProtocolServers")


def _replaced(text: str, _values: Mapping[str, str], _where: str) -> str:
    """`${{ secrets.X }}`."""
    return _VARIABLE.sub(lambda match: f"${{secret:{match.group(1)}}}", text)


def _shape(entry: Entry) -> Entry:
    """An item of a list, with its headers in `requestOptions`; earlier with everything in `transport`."""
    entry = {key: value for key, value in entry.items() if key != "name"}
    if isinstance(transport := entry.get("transport"), dict):
        entry = {key: value for key, value in entry.items() if key != "transport"} | transport
    if isinstance(options := entry.get("requestOptions"), dict):
        entry = {key: value for key, value in entry.items() if key != "requestOptions"}
        headers = mapping(options.get("headers") or {}, "requestOptions.headers")
        entry |= {"headers": headers} if headers else {}
        entry |= {f"requestOptions.{key}": value for key, value in options.items() if key != "headers"}
    if (key := entry.get("apiKey")) is not None:
        entry = {name: value for name, value in entry.items() if name != "apiKey"}
        headers = mapping(entry.get("headers") or {}, "headers")
        entry["headers"] = {"Authorization": f"Bearer {text_of(key, 'apiKey')}"} | headers
    return entry


def _wrote(document: Mapping[str, Any], kind: FileKind) -> bool:
    if kind is FileKind.YAML:
        return "extensions" not in document
    return kind is FileKind.JSON and (isinstance(document.get("mcpServers"), list) or "experimental" in document)


def _is_foreign(document: Mapping[str, Any]) -> bool:
    listed = document.get("mcpServers")
    is_listed = isinstance(listed, list) and any(isinstance(entry, dict) for entry in listed)
    experimental = value_at(document, _EARLIER[:1])
    return is_listed or (isinstance(experimental, dict) and _EARLIER[1] in experimental)


CONTINUE = ClientProgram(
    "continue",
    "Continue",
    (
        KnownFile(Base.HOME, ".continue/config.yaml", kind=FileKind.YAML),
        KnownFile(Base.HOME, ".continue/config.json", (("mcpServers",), _EARLIER)),
    ),
    needs_file=True,
    signs=FileSigns(_wrote, re.compile(r"^mcpServers:[ \t]*(?:#.*)?$", re.MULTILINE), _is_foreign),
    reading=EntryReading(
        VariableSpelling(_replaced),
        _shape,
        left_out={**LEFT_OUT, "faviconUrl": SHOWN, "connectionTimeout": STARTING},
    ),
    writing=EntryWriting(types=("stdio", "streamable-http"), in_list=True),
)
