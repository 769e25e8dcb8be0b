"""Zed: servers in `context_servers` of its settings, beside extensions that only Zed can start."""

from __future__ import annotations

from mcp_optimizer.config.known_clients.entry_spelling import (
    LEFT_OUT,
    NO_VARIABLES,
    Entry,
    EntryReading,
    EntryWriting,
    with_names,
)
from mcp_optimizer.config.known_clients.program import Base, ClientProgram, FileSigns, KnownFile, SwitchOff
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry
from mcp_optimizer.config.textfiles.kinds import FileKind

_SERVERS = "context_servers"


def _shape(entry: Entry) -> Entry:
    """`{"source": "custom", "command": "x"}`, or `{"command": {"path": "x", "args": [], "env": {}}}`."""
    entry = dict(entry)
    source = entry.pop("source", "custom")
    if source == "extension" or (not entry.keys() & {"command", "url"} and "settings" in entry):
        raise UnusableEntry("it is an extension of Zed, which only Zed can start")
    if source != "custom":
        entry["source"] = source
    if isinstance(command := entry.get("command"), dict):
        inner = with_names(command, {"path": "command"})
        return {**{key: value for key, value in entry.items() if key != "command"}, **inner}
    return entry


ZED = ClientProgram(
    "zed",
    "Zed",
    (KnownFile(Base.CONFIG, "zed/settings.json", ((_SERVERS,),), on_windows="Zed/settings.json"),),
    (".zed/settings.json",),
    switch_off=SwitchOff.ENABLED,
    signs=FileSigns(
        lambda document, kind: kind is FileKind.JSON and isinstance(document.get(_SERVERS), dict),
        is_foreign=lambda document: isinstance(document.get(_SERVERS), dict),
    ),
    reading=EntryReading(NO_VARIABLES, _shape, left_out={**LEFT_OUT, "remote": "it concerns Zed's remote projects"}),
    writing=EntryWriting(beginning={"source": "custom"}, passed_on=lambda _: {"env": {}}),
)
