"""VS Code and VS Code Insiders: servers in `mcp.json` or in the user's settings, and a command that adds one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_optimizer.config.known_clients.entry_spelling import (
    LEFT_OUT,
    EntryReading,
    EntryWriting,
    OurGateway,
    OwnCommands,
)
from mcp_optimizer.config.known_clients.program import Base, ClientProgram, FileSigns, KnownFile
from mcp_optimizer.config.textfiles.kinds import FileKind


def _code(name: str, title: str, folder: str, program: str) -> ClientProgram:
    def adding(name: str, entry: Mapping[str, Any], _gateway: OurGateway) -> list[str]:
        return [program, "--add-mcp", json.dumps({"name": name, **entry})]

    return ClientProgram(
        name,
        title,
        (
            KnownFile(Base.SUPPORT, f"{folder}/User/mcp.json", (("servers",),)),
            KnownFile(Base.SUPPORT, f"{folder}/User/settings.json", (("mcp", "servers"),)),
        ),
        (".vscode/mcp.json",),
        is_of_project=True,
        signs=FileSigns(
            lambda document, kind: kind is FileKind.JSON and isinstance(document.get("servers"), dict),
        ),
        reading=EntryReading(
            left_out={
                **LEFT_OUT,
                "dev": "it is for developing a server in VS Code",
                **dict.fromkeys(("sandbox", "sandboxEnabled"), "servers run without a sandbox here"),
            },
        ),
        writing=EntryWriting(types=("stdio", "http")),
        commands=OwnCommands(adding),
    )


VSCODE = _code("vscode", "VS Code", "Code", "code")
INSIDERS = _code("vscode-insiders", "VS Code Insiders", "Code - Insiders", "code-insiders")
