"""How each client writes an entry: which of its keys mean one of ours, and which concern only the client. Data.

`entries` applies it; forms that differ in more than names are made flat by `shapes` first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.clients import shapes
from mcp_optimizer.clients.spellings import Spelling

Entry = dict[str, Any]

_ASKING = "what is called without asking is up to your client, or to rules"
_STARTING = "how long servers may take to start is the option --start-timeout"
_SHOWN = "it only concerns how the client shows it"
_ELSEWHERE = "it only concerns where the client got it from"

_RENAMED = {
    "serverUrl": "url",
    "httpUrl": "url",
    "includeTools": "tools",
    "enabledTools": "tools",
    "enabled_tools": "tools",
    "available_tools": "tools",
    "excludeTools": "disabledTools",
    "disabled_tools": "disabledTools",
    "transport": "type",
    "transportType": "type",
    "environment": "env",
}
_SEARCHED = "which tools its own search hides is up to the client"
_LEFT_OUT = {
    "autoApprove": _ASKING,
    "alwaysAllow": _ASKING,
    "name": _SHOWN,
    "gallery": _ELSEWHERE,
    "version": _ELSEWHERE,
}


@dataclass(frozen=True)
class ClientDialect:
    """A client's way of writing entries."""

    spelling: Spelling = Spelling.OURS
    shape: Callable[[Entry], Entry] = dict
    """Makes an entry flat, with keys of ours or of `renamed`."""
    renamed: Mapping[str, str] = field(default_factory=lambda: _RENAMED)
    left_out: Mapping[str, str] = field(default_factory=lambda: _LEFT_OUT)
    """Keys that are known and mean nothing here, and why."""
    in_milliseconds: bool = False
    """Whether `timeout` is."""


_EDITOR = ClientDialect(Spelling.EDITOR)
_PLAIN = ClientDialect(Spelling.NONE)

DIALECTS: Mapping[str, ClientDialect] = {
    "file": ClientDialect(),
    "claude-desktop": _PLAIN,
    "claude-code": ClientDialect(left_out=_LEFT_OUT | {"alwaysLoad": _SEARCHED}, in_milliseconds=True),
    "cursor": _EDITOR,
    "vscode": ClientDialect(
        Spelling.EDITOR,
        left_out=_LEFT_OUT
        | {"dev": "it is for developing a server in VS Code"}
        | dict.fromkeys(("sandbox", "sandboxEnabled"), "servers run without a sandbox here"),
    ),
    "copilot-cli": ClientDialect(left_out=_LEFT_OUT | {"deferTools": _SEARCHED}, in_milliseconds=True),
    "windsurf": _EDITOR,
    "cline": _EDITOR,
    "roo": ClientDialect(
        Spelling.EDITOR, left_out=_LEFT_OUT | {"watchPaths": "servers are not restarted when files change"}
    ),
    "zed": ClientDialect(
        Spelling.NONE, shapes.of_zed, left_out=_LEFT_OUT | {"remote": "it concerns Zed's remote projects"}
    ),
    "codex": ClientDialect(
        Spelling.NONE,
        shapes.of_codex,
        left_out=_LEFT_OUT
        | dict.fromkeys(("startup_timeout_sec", "startup_timeout_ms"), _STARTING)
        | dict.fromkeys(("default_tools_approval_mode", "tools"), _ASKING)
        | {"required": "a server that fails never stops the others", "omit_tools_from": _SEARCHED},
    ),
    "gemini": ClientDialect(
        Spelling.GEMINI,
        shapes.of_gemini,
        left_out=_LEFT_OUT | {"trust": _ASKING, "extensionName": _ELSEWHERE},
        in_milliseconds=True,
    ),
    "qwen": ClientDialect(
        Spelling.GEMINI,
        shapes.of_gemini,
        left_out=_LEFT_OUT | {"trust": _ASKING, "extensionName": _ELSEWHERE, "alwaysLoadTools": _SEARCHED},
        in_milliseconds=True,
    ),
    "kimi": ClientDialect(
        Spelling.NONE,
        renamed=_RENAMED | {"toolTimeoutMs": "timeout", "bearerTokenEnvVar": "bearer_token_env_var"},
        left_out=_LEFT_OUT | {"startupTimeoutMs": _STARTING, "executor": "servers are always started here"},
        in_milliseconds=True,
    ),
    "vibe": ClientDialect(
        Spelling.NONE,
        shapes.of_vibe,
        left_out=_LEFT_OUT
        | {
            "startup_timeout_sec": _STARTING,
            "prompt": "it is a hint that only Vibe adds to descriptions",
            "sampling_enabled": "what servers may ask of models is up to your client",
        },
    ),
    "openhands": ClientDialect(
        Spelling.NONE, left_out=_LEFT_OUT | {"keep_alive": "servers stay as long as they are used"}
    ),
    "opencode": ClientDialect(Spelling.OPENCODE, shapes.of_opencode, left_out=_LEFT_OUT | {"timeout": _STARTING}),
    "goose": ClientDialect(
        Spelling.NONE,
        shapes.of_goose,
        left_out=_LEFT_OUT | {"bundled": _ELSEWHERE, "display_name": _SHOWN},
    ),
    "lm-studio": ClientDialect(Spelling.EDITOR, in_milliseconds=True),
    "continue": ClientDialect(
        Spelling.CONTINUE,
        shapes.of_continue,
        left_out=_LEFT_OUT | {"faviconUrl": _SHOWN, "connectionTimeout": _STARTING},
    ),
    "kiro": ClientDialect(in_milliseconds=True),
    "amp": ClientDialect(),
}
"""By the name of the client. VS Code Insiders writes as VS Code does."""


def dialect_of(client: str) -> ClientDialect:
    """How a client writes entries."""
    return DIALECTS["vscode" if client == "vscode-insiders" else client]
