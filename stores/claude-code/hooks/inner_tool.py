"""A PreToolUse hook of Claude Code: applies a person's permissions for `mcp__SERVER__TOOL` to what `call_tool` calls.

Claude Code sees one tool for all servers' tools, so its own rules for single tools would be lost. This reads them from
the settings files and answers for the tool inside: a rule that denies is a refusal, one that asks is a question that
names the tool, and one that allows a tool of a named server spares the question. Without a rule, Claude Code goes on
as always, and the person is shown the inner tool. Only the standard library: it runs outside any environment.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_MANAGED = {
    "darwin": Path("/Library/Application Support/ClaudeCode"),
    "win32": Path("C:/Program Files/ClaudeCode"),
}
_LARGEST = 4_000_000
_SHOWN = 300
_NOT_LETTERS = re.compile(r"[^A-Za-z0-9*?]")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]")
STRICTEST = ("deny", "ask", "allow")


def settings_files(home: Path, project: Path, variables: Mapping[str, str], platform: str) -> list[Path]:
    """Every file in which Claude Code keeps permissions."""
    named = variables.get("CLAUDE_CONFIG_DIR", "")
    own = Path(named).expanduser() if named else home / ".claude"
    managed = _MANAGED.get(platform, Path("/etc/claude-code"))
    local = [
        folder / name for folder in (own, project / ".claude") for name in ("settings.json", "settings.local.json")
    ]
    return [managed / "managed-settings.json", *local]


def permissions(files: list[Path]) -> Iterator[tuple[str, str]]:
    """Each rule about tools of servers, with its kind. A file that cannot be read is an error: it may deny."""
    for file in files:
        if not file.is_file():
            continue
        with file.open(encoding="utf-8-sig") as opened:
            text = opened.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError(f"{file} is too large")
        said = json.loads(text or "{}").get("permissions") or {}
        for kind in STRICTEST:
            yield from ((kind, rule) for rule in said.get(kind) or () if str(rule).startswith("mcp__"))


def plain(name: str) -> str:
    """A name as Claude Code writes it in rules."""
    return _NOT_PLAIN.sub("_", name)


def squeezed(name: str) -> str:
    """Letters and digits alone: the gateway takes `delete-repo` and `github.deleteRepo` for `delete_repo`, too."""
    return _NOT_LETTERS.sub("", name).lower()


def about(rule: str, server: str, tool: str) -> bool | None:
    """Whether a rule may be about this tool, in any spelling; None if that depends on a server that is not named."""
    of_server, _, of_tool = rule.removeprefix("mcp__").partition("__")
    if server and not fnmatch.fnmatchcase(plain(server), of_server):
        return False
    name = squeezed(tool)
    names = (squeezed(of_tool or "*"), squeezed(of_server) + squeezed(of_tool or "*"))
    if not any(fnmatch.fnmatchcase(name, one) for one in names):
        return False
    return True if server else None


def is_exactly(rule: str, server: str, tool: str) -> bool:
    """Whether a rule is about this tool as it is named: what is allowed must leave no doubt."""
    of_server, _, of_tool = rule.removeprefix("mcp__").partition("__")
    is_tool = fnmatch.fnmatchcase(tool, of_tool or "*") and plain(tool) == tool
    return bool(server) and fnmatch.fnmatchcase(plain(server), of_server) and is_tool


def inner(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The server, if it is named, and the tool that a call of `call_tool` calls."""
    tool, server = str(arguments.get("tool_name") or ""), str(arguments.get("server_name") or "")
    return server, tool


def decided(server: str, tool: str, rules: list[tuple[str, str]]) -> tuple[str, str]:
    """What to do about a call, and why; nothing where no rule is about it."""
    name = f"{server or '?'}: {tool}"
    for kind in STRICTEST:
        for said, rule in rules:
            if said != kind:
                continue
            matches = is_exactly(rule, server, tool) if kind == "allow" else about(rule, server, tool)
            if matches:
                return kind, f"{name} (your permissions {kind} {rule})"
            if matches is None and kind == "deny":
                # Refused, so that the model says which server: another may have a tool of the same name.
                return "deny", f"Your permissions have rules for single servers ({rule}). Give server_name with {tool}."
            if matches is None and kind == "ask":
                return "ask", f"{name} (your permissions ask about {rule})"
    return "", name


def answer(call: Mapping[str, Any], files: list[Path]) -> dict[str, Any]:
    """What the hook says about a call."""
    arguments = call.get("tool_input") if isinstance(call.get("tool_input"), dict) else {}
    server, tool = inner(arguments)
    try:
        kind, reason = decided(server, tool, list(permissions(files)))
    except (OSError, ValueError, AttributeError, TypeError) as problem:
        kind, reason = "ask", f"{server}: {tool} (your permissions cannot be read: {problem})"
    given = json.dumps(arguments.get("parameters") or {}, ensure_ascii=False)
    shown = "".join(letter if letter.isprintable() else " " for letter in f"{reason} {given}")[:_SHOWN]
    if not kind:
        return {"systemMessage": shown}
    said = {"hookEventName": "PreToolUse", "permissionDecision": kind, "permissionDecisionReason": shown}
    return {"hookSpecificOutput": said}


def main() -> None:
    call = json.load(sys.stdin)
    project = Path(os.environ.get("CLAUDE_PROJECT_DIR") or call.get("cwd") or ".")
    files = settings_files(Path.home(), project, os.environ, sys.platform)
    print(json.dumps(answer(call, files)))


if __name__ == "__main__":
    main()
