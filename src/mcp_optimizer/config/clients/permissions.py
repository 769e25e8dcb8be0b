"""Turns a client's permissions for single tools into rules of ours. Pure, apart from reading its files.

Called by `import`: through the gateway, a client sees `call_tool` only, so its own rules about a server's tools no
longer apply. Never loosens: what it denied is denied, what it asked about is asked about, and for every client. What
it called without asking is not carried over: the client asks about our tools in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcp_optimizer.config.clients.files import LARGEST, Machine, content_of
from mcp_optimizer.config.clients.importing import ImportPlan, PlannedEntry
from mcp_optimizer.config.known_clients.program import ClientPermission, ClientProgram, listed_texts, literal
from mcp_optimizer.config.textfiles.editing import with_item
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import UnreadableText, parsed
from mcp_optimizer.domain.caller import Effect, Rule

_NAMED = 5
_STRICTEST = (Effect.DENY, Effect.ASK, Effect.ALLOW)


@dataclass(frozen=True)
class CarriedRules:
    """Rules made from a client's permissions, and notes on permissions that cannot be carried over."""

    rules: tuple[Rule, ...] = ()
    """In order of precedence: refusals first."""
    left: tuple[str, ...] = ()


def carried(plan: ImportPlan, existing: Mapping[str, Any], machine: Machine) -> CarriedRules:
    """Rules for all servers of a plan that are in our file now. `existing`: the entries it had before."""
    rules: list[Rule] = []
    left: list[str] = []
    for client in dict.fromkeys(file.client for file in plan.files):
        moved = [one for one in plan.entries if one.is_there and one.file.client is client]
        if not moved:
            continue
        for one in moved:
            rules += _of_entry(one, existing.get(one.name))
            left += _only_some(one, existing.get(one.name))
        found, unread = _of_files(client, moved, plan, machine)
        rules, left = [*rules, *found], [*left, *unread]
    return CarriedRules(tuple(_ordered(rules)), tuple(left))


def _ordered(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Each rule once. Refusals first; a question about a whole server after the tools that the same client allowed."""
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
    """Whether the client that asks about this server allowed the tool, and no other client asks about all of it."""
    wide = [one for one in rules if one.server == rule.server and one.effect is Effect.ASK and one.tool == "*"]
    return allowed.server == rule.server and all(one.reason == allowed.reason for one in wide) and wide[0] is rule


def with_rules(text: str, rules: Sequence[Rule]) -> str:
    """The text of a settings file with these rules: refusals before all existing rules, the others after them.

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
    """Rules from the entry itself. A new entry of ours excludes the same tools anyway; an older one needs rules."""
    value = one.listed.value if isinstance(one.listed.value, dict) else {}
    reason = f"{one.file.client.title} did not offer it"
    if isinstance(existing, dict):
        for tool in listed_texts(value, "disabledTools", "disabled_tools", "excludeTools"):
            yield Rule(Effect.DENY, literal(one.name), literal(tool), reason=reason)
    for said in one.file.client.permissions.of_entry(one.listed.name, value):
        yield _rule(said, one)


def _rule(said: ClientPermission, one: PlannedEntry) -> Rule:
    """A client's permission as a rule about the server's name in our file."""
    return Rule(Effect(said.kind.value), literal(one.name), said.tool, reason=said.reason)


def _only_some(one: PlannedEntry, existing: Any) -> Iterator[str]:
    """A note if a client offered only some tools of a server, and our earlier entry offers more."""
    value = one.listed.value if isinstance(one.listed.value, dict) else {}
    only = listed_texts(value, "enabled_tools", "enabledTools", "includeTools", "available_tools")
    chosen = one.file.client.permissions.chosen_key
    if chosen and "*" not in (named := listed_texts(value, chosen)):
        only = named
    there = listed_texts(existing, "tools") if isinstance(existing, dict) else only
    if only and not (there and set(there) <= set(only)):
        shown = ", ".join(only[:_NAMED]) + (" ..." if only[_NAMED:] else "")
        yield f'{one.name}: {one.file.client.title} offered only {shown}. Ours offers more; add "tools" to its entry'


def _of_files(
    client: ClientProgram, moved: Sequence[PlannedEntry], plan: ImportPlan, machine: Machine
) -> tuple[list[Rule], list[str]]:
    """Rules from a client's files for servers that moved, and notes on what is not carried over."""
    reading = client.permissions
    rules: list[Rule] = []
    left: list[str] = []
    allowed = 0
    if reading.of_file is None:
        return rules, left
    servers = list(dict.fromkeys(one.listed.name for one in moved))
    for path, document, problem in _documents(client, plan, machine):
        if problem:
            left.append(f"{path} was not read, so its permissions are not carried over: {problem}")
        said = reading.of_file(document, servers, path.name)
        rules += [_rule(one, entry) for one in said.found for entry in moved if entry.listed.name == one.server]
        allowed += said.allowed
    if allowed:
        left.append(
            f"{client.title} called {allowed} kind{'s' if allowed > 1 else ''} of tools without asking; it asks about "
            "call_tool and call_tool_read now. Allow call_tool_read there for tools that only read"
        )
    return rules, left


def _documents(
    client: ClientProgram, plan: ImportPlan, machine: Machine
) -> Iterator[tuple[Path, Mapping[str, Any], str]]:
    """The files with a client's permissions, each with the reason if it cannot be read."""
    if (others := client.permissions.other_files) is None:
        for file in plan.files:
            if file.client is client and not file.problem:
                yield file.place.path, file.document if isinstance(file.document, dict) else {}, ""
        return
    for path in others(machine.home, machine.environment, machine.platform, machine.folder):
        yield path, *_document(path)


def _document(path: Path) -> tuple[Mapping[str, Any], str]:
    """A settings file of a client, or the reason why it cannot be read."""
    if not path.exists():
        return {}, ""
    try:
        document = parsed(content_of(path, LARGEST[FileKind.JSON]).decode("utf-8"), FileKind.JSON)
    except (UnicodeDecodeError, UnreadableText) as error:
        return {}, str(error)
    return (document, "") if isinstance(document, dict) else ({}, "it is not an object")
