"""The steps of `add`: fills a draft from options and answers, shows the preview, and starts the server once.

Called by `adding`. Secret values never become arguments and are never printed; the server file only names them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcp_optimizer.cli.command_gateway import started
from mcp_optimizer.cli.terminal import asked_values, console, hidden_value, is_terminal, value_of_stdin, with_full_path
from mcp_optimizer.config.packages.draft import Draft, Gap, WantedInput, entry_of, environment_name, header_name
from mcp_optimizer.config.serverfile.recognised_servers import kept_running, why_kept_running
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, printable


@dataclass(frozen=True)
class AddChoices:
    """The user's command-line options. `secrets` are names; their values are asked for."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class FilledEntry:
    """The entry, the secrets to store for it, and what is still missing."""

    entry: dict[str, Any] = field(repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    missing: tuple[WantedInput, ...] = ()


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, Any]:
    """`NAME=VALUE` by name; `--input` may repeat a name, so its values are tuples."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigurationError(f"{option} wants NAME=VALUE, with a name before the first equals sign.")
        if option == "--input":
            found[name] = (*found.get(name, ()), value)
        else:
            found[environment_name(name) if option == "--env" else header_name(name)] = value
    return found


def filled(draft: Draft, given: AddChoices, name: str, *, asks: bool) -> FilledEntry:
    """The entry of a draft, from the options and, at a terminal, from answers."""
    inputs = dict(given.inputs)
    env, headers = dict(given.env), dict(given.headers)
    for values, texts in ((env, draft.env), (headers, draft.headers)):
        for key in [key for key in values if key in texts]:
            if len(texts[key]) == 1 and isinstance(gap := texts[key][0], Gap) and gap.key not in inputs:
                # It answers a question, and is checked like any answer.
                inputs[gap.key] = (values.pop(key),)
    draft = _with_more_secrets(draft.with_values(env, headers), given.secrets)
    if unknown := [key for key in inputs if key not in draft.wanted]:
        there = ", ".join(draft.wanted) or "nothing"
        raise ConfigurationError(f"It does not ask for {unknown[0]!r}; it asks for {there}.")
    answers = {key: _checked(draft.wanted[key], values) for key, values in inputs.items()}
    secrets: dict[str, str] = {}
    if asks:
        _ask(draft, answers, secrets, name, given.secrets)
    complete = draft.with_defaults(answers)
    missing = tuple(draft.missing(complete))
    if missing and asks:
        raise ConfigurationError(_explained(missing))
    shown = {**complete, **{one.key: (f"<{one.key}>",) for one in missing}}
    return FilledEntry(kept_running(entry_of(draft, shown)), secrets, missing)


def _with_more_secrets(draft: Draft, names: Sequence[str]) -> Draft:
    """Also makes the chosen variables or headers secret, unless the server asks for them anyway."""
    for name in names:
        if name in draft.wanted:
            marked = replace(draft.wanted[name], is_secret=True, is_required=True)
            draft = replace(draft, wanted={**draft.wanted, name: marked})
            continue
        wanted = {**draft.wanted, name: WantedInput(name, is_required=True, is_secret=True)}
        if draft.url:
            headers = {key: value for key, value in draft.headers.items() if key.lower() != name.lower()}
            draft = replace(draft, headers={**headers, header_name(name): (Gap(name),)}, wanted=wanted)
        else:
            draft = replace(draft, env={**draft.env, environment_name(name): (Gap(name),)}, wanted=wanted)
    return draft


def _checked(wanted: WantedInput, values: Sequence[str]) -> tuple[str, ...]:
    if wanted.is_secret and not all("${" in value for value in values):
        raise ConfigurationError(
            f"{wanted.key} is secret, and other users can see arguments. Give it with --secret {wanted.key}, or "
            f"refer to a variable: --input {wanted.key}='${{VARIABLE}}'."
        )
    if len(values) > 1 and not wanted.is_list:
        raise ConfigurationError(f"{wanted.key} takes one value, not {len(values)}.")
    for value in values:
        if problem := wanted.problem(value):
            raise ConfigurationError(f"{wanted.key} {problem}.")
    return tuple(with_full_path(wanted, value) for value in values)


def _ask(
    draft: Draft, answers: dict[str, tuple[str, ...]], secrets: dict[str, str], server: str, named: Sequence[str]
) -> None:
    """Adds what the user enters to the answers; secret values go to `secrets`, and their references to the answers."""
    if is_terminal():
        found = {one.key: asked_values(one) for one in draft.missing(answers) if not one.default or one.is_secret}
        found |= {key: (hidden_value(key),) for key in named if key not in found and key not in answers}
    else:
        waiting = [key for key in named if key not in answers]
        if len(waiting) > 1:
            raise ConfigurationError(
                "Only one secret can be read from stdin. Store the rest with `mcp-optimizer secret set NAME`, and "
                "refer to them: --input KEY='${secret:NAME}'."
            )
        found = {key: (value_of_stdin(),) for key in waiting}
    for key, values in found.items():
        if draft.wanted[key].is_secret and values and "${" not in values[0]:
            stored = f"{server}/{key}"
            secrets[stored] = ",".join(values)
            answers[key] = (f"${{secret:{stored}}}",)
        elif values:
            answers[key] = values


def _explained(missing: Sequence[WantedInput]) -> str:
    """The missing inputs, and how to give them."""
    said = []
    for one in missing:
        how = f"--secret {one.key} (its value on stdin)" if one.is_secret else f"--input {shlex.quote(one.key)}=VALUE"
        about = f" ({one.description})" if one.description else ""
        said.append(f"{one.key}{about}: {how}")
    return f"The server needs {counted(len(missing), 'more value')}: {'; '.join(said)}."


def preview_facts(draft: Draft, name: str, filling: FilledEntry) -> dict[str, Any]:
    """What will run, without the values of variables and headers."""
    entry = filling.entry
    facts: dict[str, Any] = {"name": name}
    if "url" in entry:
        facts |= {"url": without_query(entry["url"]), "headers": list(entry.get("headers", {}))}
    else:
        command = [entry["command"], *entry.get("args", [])]
        facts |= {"command": command, "environment": list(entry.get("env", {}))}
    if filling.missing:
        facts["missing"] = [one.key for one in filling.missing]
    if filling.secrets:
        facts["secrets"] = list(filling.secrets)
    return {**facts, "notes": _notes(draft, filling)}


def _notes(draft: Draft, filling: FilledEntry) -> list[str]:
    why = why_kept_running(filling.entry)
    return [*draft.notes, *([f"It {why}."] if why else [])]


def without_query(url: str) -> str:
    """An address without the parts that may be secret."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    query = "?…" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def show_preview(draft: Draft, name: str, filling: FilledEntry, path: Path) -> None:
    out = console()
    facts = preview_facts(draft, name, filling)

    def line(label: str, text: str, style: str = "") -> None:
        # Spaces in an argument belong to the command; only a line break could pass for another line of ours.
        shown = printable(text).replace("\n", " ")
        out.print(f"  {label:<8} {shown}", style=style or None, markup=False, soft_wrap=True)

    out.print(in_a_line(f"{name}{f': {draft.description}' if draft.description else ''}"), style="bold", markup=False)
    if "url" in facts:
        line("reaches", facts["url"])
        line("headers", ", ".join(facts["headers"]) or "none")
    else:
        line("runs", shlex.join(facts["command"]))
        line("with", ", ".join(facts["environment"]) or "no variables")
    for one in filling.missing:
        line("asks for", f"{one.key}{' (secret)' if one.is_secret else ''} {one.description}")
    for stored in filling.secrets:
        line("keeps", f"the secret {stored}")
    for note in facts["notes"]:
        line("note", note, "yellow")
    line("in", str(path), "dim")


async def first_start(settings: Settings, name: str, *, prints: bool) -> dict[str, Any]:
    """Start a server once, to see whether it works and what its tools cost."""
    from mcp_optimizer.cli.server_advice import advise
    from mcp_optimizer.domain.tools import ServerStatus

    # One attempt: a restart would hide the first error.
    once = settings.model_copy(
        update={
            "servers": name,
            "encoder": "none",
            "wait": settings.start_timeout + 10,
            "restart_pause": 3_600.0,
            "restart_pause_max": 3_600.0,
        }
    )
    async with started(once, fresh=True, shows_servers=True) as optimizer:
        [state] = optimizer.servers()
        tools = [tool for tool in optimizer.snapshot.running if tool.server == name]
    works = state.status is ServerStatus.RUNNING
    tokens = sum(tool.tokens for tool in tools)
    facts: dict[str, Any] = {"works": works, "status": state.status.value, "tools": len(tools), "tokens": tokens}
    if not works:
        facts |= {"reason": state.reason, "advice": advise(state)}
    if prints:
        said = f"It works: {counted(len(tools), 'tool')}, {tokens:,} tokens."
        if not works:
            said = f"It does not work yet: {state.reason or state.status.value}. {facts['advice']}"
        console().print(in_a_line(said), style="green" if works else "yellow", markup=False, soft_wrap=True)
    return facts
