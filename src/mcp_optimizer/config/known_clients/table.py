"""All clients that keep servers in files. To add one, add a line here."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_optimizer.config.known_clients import plain
from mcp_optimizer.config.known_clients.claude_code import CLAUDE_CODE
from mcp_optimizer.config.known_clients.codex import CODEX
from mcp_optimizer.config.known_clients.continue_dev import CONTINUE
from mcp_optimizer.config.known_clients.gemini import GEMINI, QWEN
from mcp_optimizer.config.known_clients.goose import GOOSE
from mcp_optimizer.config.known_clients.opencode import OPENCODE
from mcp_optimizer.config.known_clients.program import ClientProgram
from mcp_optimizer.config.known_clients.vibe import VIBE
from mcp_optimizer.config.known_clients.vscode import INSIDERS, VSCODE
from mcp_optimizer.config.known_clients.zed import ZED

_WITH_FILES = (
    plain.CLAUDE_DESKTOP,
    CLAUDE_CODE,
    plain.CURSOR,
    VSCODE,
    INSIDERS,
    plain.COPILOT_CLI,
    plain.WINDSURF,
    plain.CLINE,
    plain.ROO,
    ZED,
    # Before Codex, whose tables look like parts of a list item of this one.
    VIBE,
    CODEX,
    GEMINI,
    QWEN,
    plain.KIMI,
    plain.OPENHANDS,
    OPENCODE,
    GOOSE,
    plain.LM_STUDIO,
    CONTINUE,
    plain.KIRO,
    plain.AMP,
)

CLIENTS: Mapping[str, ClientProgram] = {client.name: client for client in _WITH_FILES}
"""All clients with a file of servers, by name, in the order in which they are looked for."""
