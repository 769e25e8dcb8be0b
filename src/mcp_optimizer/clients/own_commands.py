"""The commands by which clients add and remove a server themselves, as lists of words.

Pure: it says what to run; the command line runs it. Called by `connecting`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_optimizer.clients.own_entry import OurGateway


def adding(client: str, name: str, entry: Mapping[str, Any], gateway: OurGateway) -> list[str]:
    """The client's command that adds our entry for the user; empty if it has none that can."""
    started = [gateway.command, *gateway.args]
    if client == "claude-code":
        return ["claude", "mcp", "add-json", "--scope", "user", name, json.dumps(entry)]
    if client in ("vscode", "vscode-insiders"):
        program = "code" if client == "vscode" else "code-insiders"
        return [program, "--add-mcp", json.dumps({"name": name, **entry})]
    # Codex's command writes neither `required` nor the names of variables, and that of Gemini CLI writes their values.
    if client == "gemini" and not gateway.variables:
        begin = ["gemini", "mcp", "add", "--scope", "user"]
        if not gateway.url:
            # What follows the two dashes is the server's, even if it looks like an option.
            return [*begin, name, started[0], "--", *started[1:]]
        # It would store the header's value, not the reference.
        return [] if gateway.key_variable else [*begin, "--transport", "http", name, gateway.url]
    return []


def removing(client: str, name: str) -> list[str]:
    """The client's command that removes our entry; empty if it has none."""
    return {
        "claude-code": ["claude", "mcp", "remove", "--scope", "user", name],
        "codex": ["codex", "mcp", "remove", name],
        "gemini": ["gemini", "mcp", "remove", "--scope", "user", name],
    }.get(client, [])
