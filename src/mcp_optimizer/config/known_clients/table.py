"""All known clients, and which of them a sent name belongs to. To add a client, add a line here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

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
from mcp_optimizer.domain.client_habits import UNKNOWN, ClientHabits

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

HABITS: Mapping[str, ClientHabits] = {
    start: client.habits for client in (*_WITH_FILES, *plain.WITHOUT_FILES) for start in client.says
}
"""By prefix of the name that a client sends, in lower case. Not here: `mcp`, the name that the Python SDK
gives every program: Mistral Vibe, which reads the structure instead of the text, but also langchain and
openai-agents, which read the text.
"""


@lru_cache(maxsize=256)
def habits_of(client: str) -> ClientHabits:
    """The habits of the client with this name; the longest matching start wins."""
    name = client.strip().lower()
    known = max((start for start in HABITS if name.startswith(start)), key=len, default="")
    return HABITS.get(known, UNKNOWN)
