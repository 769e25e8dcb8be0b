"""What a client was told to refuse or to ask about, tool by tool, as rules of ours. Pure, but for reading its files.

Called by `import`: through the gateway, a client sees `call_tool` only, so its own rules about a server's tools no
longer hold. Never loosens: what it denied is denied, what it asked about is asked about, and for every client. What it
called without asking is not carried over: the client asks about our tools in its own way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcp_optimizer.clients.finding import LARGEST, FoundFile, Machine, content_of
from mcp_optimizer.clients.importing import ImportPlan, PlannedEntry
from mcp_optimizer.domain.decisions import Effect, Rule
from mcp_optimizer.textfiles.editing import with_item
from mcp_optimizer.textfiles.kinds import FileKind
from mcp_optimizer.textfiles.reading import UnreadableText, parsed

_MOST = 1_000
"""Rules that are read from one file, and tools of one entry."""
_LONGEST = 300
_NAMED = 5
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]")
_SIGNS = re.compile(r"[*?\[]")
_EFFECTS = {"deny": Effect.DENY, "ask": Effect.ASK}
_STRICTEST = (Effect.DENY, Effect.ASK, Effect.ALLOW)


@dataclass(frozen=True)
class CarriedRules:
    """Rules that a client's permissions become, and what of them cannot be carried over."""

    rules: tuple[Rule, ...] = ()
    """In the order in which they count: refusals first."""
    left: tuple[str, ...] = ()


def carried(plan: ImportPlan, existing: Mapping[str, Any], machine: Machine) -> CarriedRules:
    """The rules for all servers of a plan that are ours now. `existing`: the entries that were in our file before."""
    rules: list[Rule] = []
    left: list[str] = []
    for client in dict.fromkeys(file.client.name for file in plan.files):
        moved = [one for one in plan.entries if one.is_there and one.file.client.name == client]
        if not moved:
            continue
        for one in moved:
            rules += _of_entry(one, existing.get(one.name))
            left += _only_some(one, existing.get(one.name))
        if client == "claude-code":
            found, unread = _of_claude(moved, machine)
            rules, left = [*rules, *found], [*left, *unread]
        if client == "opencode":
            for file in (one for one in plan.files if one.client.name == client and not one.problem):
                rules += _of_opencode(moved, file)
    return CarriedRules(tuple(_ordered(rules)), tuple(left))


def _ordered(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Each once. Refusals first; questions about all of a server behind what the same client allowed of it."""
    seen: set[Rule] = set()
    given = list(rules)
    for rule in sorted(given, key=lambda one: (_STRICTEST.index(one.effect), one.tool == "*")):
        is_wide = rule.effect is Effect.ASK and rule.tool == "*"
        if is_wide:
            allowed = [one for one in given if one.effect is Effect.ALLOW and _is_exception(one, rule, given)]
            yield from (replace(one, reason="") for one in allowed)
        plain = replace(rule, reason="")
        if plain not in seen and rule.effect is not Effect.ALLOW:
            seen.add(plain)
            yield rule


def _is_exception(allowed: Rule, rule: Rule, rules: Sequence[Rule]) -> bool:
    """Whether a client allowed this while it asked about the rest, and no other client asks about all of the server."""
    wide = [one for one in rules if one.server == rule.server and one.effect is Effect.ASK and one.tool == "*"]
    return allowed.server == rule.server and all(one.reason == allowed.reason for one in wide) and wide[0] is rule


def with_rules(text: str, rules: Sequence[Rule]) -> str:
    """The text of a settings file with these rules: refusals before all that are there, the others behind them.

    Raises CannotEdit, or UnreadableText.
    """
    refusals = [rule for rule in rules if rule.effect is Effect.DENY]
    for rule in reversed(refusals):
        text = with_item(text, FileKind.TOML, ("rules",), _as_written(rule), first=True)
    for rule in rules:
        if rule not in refusals:
            text = with_item(text, FileKind.TOML, ("rules",), _as_written(rule))
    return text


def _as_written(rule: Rule) -> dict[str, str]:
    said = {"effect": rule.effect.value, "server": rule.server, "tool": rule.tool, "reason": rule.reason}
    return {key: value for key, value in said.items() if value not in ("", "*")}


def _of_entry(one: PlannedEntry, existing: Any) -> Iterator[Rule]:
    """What the entry itself says. Tools that it leaves out are left out by ours too, unless that was there before."""
    value = one.listed.value if isinstance(one.listed.value, dict) else {}
    reason = f"{one.file.client.title} did not offer it"
    if isinstance(existing, dict):
        for tool in _texts(value, "disabledTools", "disabled_tools", "excludeTools"):
            yield Rule(Effect.DENY, _literal(one.name), _literal(tool), reason=reason)
    if one.file.client.name == "codex":
        yield from _of_codex(one, value)


def _only_some(one: PlannedEntry, existing: Any) -> Iterator[str]:
    """What to say where a client offered only some tools of a server, and our entry was there before with more."""
    value = one.listed.value if isinstance(one.listed.value, dict) else {}
    only = _texts(value, "enabled_tools", "enabledTools", "includeTools", "available_tools")
    if one.file.client.name == "copilot-cli" and "*" not in _texts(value, "tools"):
        only = _texts(value, "tools")
    there = _texts(existing, "tools") if isinstance(existing, dict) else only
    if only and not (there and set(there) <= set(only)):
        shown = ", ".join(only[:_NAMED]) + (" ..." if only[_NAMED:] else "")
        yield f'{one.name}: {one.file.client.title} offered only {shown}. Ours offers more; add "tools" to its entry'


def _of_codex(one: PlannedEntry, value: Mapping[str, Any]) -> Iterator[Rule]:
    reason = "Codex asked about it"
    tools = value.get("tools")
    modes = {
        name: tool.get("approval_mode")
        for name, tool in (list(tools.items())[:_MOST] if isinstance(tools, dict) else ())
        if isinstance(name, str) and isinstance(tool, dict)
    }
    asks_all = value.get("default_tools_approval_mode") == "prompt"
    for name, mode in modes.items():
        if mode == "prompt":
            yield Rule(Effect.ASK, _literal(one.name), _literal(name), reason=reason)
        elif mode is not None and asks_all:
            yield Rule(Effect.ALLOW, _literal(one.name), _literal(name), reason=reason)
    if asks_all:
        yield Rule(Effect.ASK, _literal(one.name), "*", reason=reason)


def _of_claude(moved: Sequence[PlannedEntry], machine: Machine) -> tuple[list[Rule], list[str]]:
    """`permissions` of Claude Code's settings: `mcp__server`, `mcp__server__*` and `mcp__server__tool`."""
    rules: list[Rule] = []
    left: list[str] = []
    allowed = 0
    for path in _claude_files(machine):
        said, problem = _document(path)
        if problem:
            left.append(f"{path} was not read, so its permissions are not carried over: {problem}")
        permissions = said.get("permissions")
        given = permissions if isinstance(permissions, dict) else {}
        for kind, effect in _EFFECTS.items():
            for text in _texts(given, kind):
                if text.startswith("mcp__"):
                    found = [rule for one in moved for rule in _claude_rules(text, one, effect, path)]
                    rules += found
        allowed += sum(
            any(True for one in moved for _ in _claude_rules(text, one, Effect.ALLOW, path))
            for text in _texts(given, "allow")
        )
    if allowed:
        left.append(
            f"Claude Code called {allowed} kind{'s' if allowed > 1 else ''} of tools without asking; it asks about "
            "call_tool and call_tool_read now. Allow call_tool_read there for tools that only read"
        )
    return rules, left


def _claude_files(machine: Machine) -> list[Path]:
    named = machine.environment.get("CLAUDE_CONFIG_DIR", "")
    own = machine.home / (named.removeprefix("~/") if named else ".claude")
    managed = {
        "darwin": Path("/Library/Application Support/ClaudeCode"),
        "win32": Path("C:/Program Files/ClaudeCode"),
    }.get(machine.platform, Path("/etc/claude-code"))
    project = machine.folder / ".claude"
    return [
        managed / "managed-settings.json",
        *(
            folder / name
            for folder in dict.fromkeys((own, project))
            for name in ("settings.json", "settings.local.json")
        ),
    ]


def _claude_rules(text: str, one: PlannedEntry, effect: Effect, path: Path) -> Iterator[Rule]:
    """A text as a rule about a server, if it is about that. Claude Code writes `_` for what names may not contain."""
    server = "mcp__" + _NOT_PLAIN.sub("_", one.listed.name)
    said = text.removeprefix(server)
    reason = f"Claude Code's {path.name} says {effect}"
    if _SIGNS.search(text[: len(server) + 1]):
        # About several servers: as much of it as may be meant.
        if _prefix(text).startswith(server) or server.startswith(_prefix(text)):
            tool = "*" + text.rpartition("*")[2].lstrip("_").replace("_", "?") if text.count("__") > 1 else "*"
            yield Rule(effect, _literal(one.name), tool, reason=reason)
    elif text.startswith(server) and said in ("", "__*", "__"):
        yield Rule(effect, _literal(one.name), "*", reason=reason)
    elif text.startswith(server) and said.startswith("__"):
        # What was replaced by `_` is not known, so any character will do.
        yield Rule(effect, _literal(one.name), said[2:].replace("_", "?").replace("[", "[[]"), reason=reason)


def _prefix(text: str) -> str:
    """What stands before the first sign of a pattern."""
    sign = _SIGNS.search(text)
    return text[: sign.start()] if sign else text


def _of_opencode(moved: Sequence[PlannedEntry], file: FoundFile) -> Iterator[Rule]:
    """`permission` and, earlier, `tools`: patterns of `server_tool`, of which the last that matches counts."""
    document = file.document if isinstance(file.document, dict) else {}
    permission = document.get("permission")
    if isinstance(permission, str):
        permission = {"*": permission}
    tools = document.get("tools")
    said: list[tuple[str, Effect]] = [
        (pattern, Effect.DENY)
        for pattern, is_on in (tools.items() if isinstance(tools, dict) else ())
        if is_on is False
    ]
    given = list(permission.items())[:_MOST] if isinstance(permission, dict) else []
    said += [(str(pattern), effect) for pattern, value in given if (effect := _strictest(value)) is not None]
    reason = f"opencode's {file.place.path.name} limits it"
    for number, (pattern, effect) in enumerate(said):
        if effect is Effect.ALLOW and any(later is not Effect.ALLOW for _, later in said[number:]):
            continue
        for one in moved:
            server = _NOT_PLAIN.sub("_", one.listed.name) + "_"
            if pattern.startswith(server):
                tool = pattern.removeprefix(server) or "*"
            elif "*" in pattern and server.startswith(_prefix(pattern)):
                tool = "*" + pattern.rpartition("*")[2].removeprefix("_")
            else:
                continue
            tool = tool.replace("_", "?") if effect is not Effect.ALLOW else tool
            yield Rule(effect, _literal(one.name), tool, reason=reason)


def _strictest(value: Any) -> Effect | None:
    """What a permission says; of one that depends on arguments, the strictest."""
    found = list(value.values()) if isinstance(value, dict) else [value]
    return next((effect for effect in _STRICTEST if effect.value in found), None)


def _texts(value: Mapping[str, Any], *keys: str) -> list[str]:
    """The texts of lists under these keys."""
    found = (item for key in keys if isinstance(value.get(key), list) for item in value[key][:_MOST])
    return [item for item in found if isinstance(item, str) and 0 < len(item) <= _LONGEST and item.isprintable()]


def _literal(name: str) -> str:
    """A pattern that only this name matches."""
    return _SIGNS.sub(lambda sign: f"[{sign.group()}]", name)


def _document(path: Path) -> tuple[Mapping[str, Any], str]:
    """A settings file of a client, and why it cannot be read."""
    if not path.exists():
        return {}, ""
    try:
        document = parsed(content_of(path, LARGEST[FileKind.JSON]).decode("utf-8"), FileKind.JSON)
    except (UnicodeDecodeError, UnreadableText) as error:
        return {}, str(error)
    return (document, "") if isinstance(document, dict) else ({}, "it is not an object")
