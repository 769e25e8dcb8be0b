"""Reads the values of a server file's entries and replaces their variables: `${VAR}` of the environment,
`${secret:NAME}` and VS Code's `${input:ID}`.

Pure: stored secrets are given by name. What VS Code would ask the user for is the secret `input:ID`, set once.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mcp_optimizer.config.textfiles.checked_values import UnusableEntry, text_of
from mcp_optimizer.domain.caller import CallerField, CallerText, problem_of
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.runtime.patterns import regex

# Reads single values of a server file's entry, or says what is wrong with them. A message never quotes a value: it
# may be a misplaced secret.

_ALIKE = 0.8
"""Similarity above which one word counts as a mistyped form of the other."""


class NotSetYet(UnusableEntry):
    """An entry that the user can make usable without changing it."""

    kind = FailureKind.VARIABLE


class VariableNotSet(NotSetYet):
    """An entry that uses an environment variable that is not set."""


def kind_of(problem: UnusableEntry) -> FailureKind:
    """The kind of failure that an unusable entry is."""
    return problem.kind if isinstance(problem, NotSetYet) else FailureKind.ENTRY


def meant(key: str, keys: Iterable[str]) -> str | None:
    """The key that this one most likely stands for, if any."""
    return next(iter(get_close_matches(key.lower(), sorted(keys), n=1, cutoff=_ALIKE)), None)


def required(entry: Mapping[str, Any], key: str) -> str:
    """A text that must not be missing."""
    value = text_at(entry, key)
    if not value:
        raise UnusableEntry(f'"{key}" is missing or empty')
    return value


def text_at(entry: Mapping[str, Any], key: str) -> str:
    """A text; empty if the key is missing."""
    return text_of(entry.get(key, ""), key)


def located(named: str, where: str, folder: Path) -> Path:
    """The path of a file or folder, relative to the server file's folder."""
    try:
        return (folder / Path(named).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):
        # The home of a user who does not exist, a null character, or a loop of links.
        raise UnusableEntry(f'"{where}" is not a usable path') from None


def scheme_for(address: str) -> str:
    """The likely scheme of an address without one: only this machine is reached without TLS."""
    host = address.lstrip("/").split("/")[0].rsplit(":", 1)[0].lower()
    return "http://" if host in ("localhost", "127.0.0.1", "[::1]") else "https://"


def from_environment(name: str, where: str, environment: Mapping[str, str]) -> str:
    """The value of the environment variable that a key names."""
    if not (found := environment.get(name, "").strip()):
        raise VariableNotSet(f'"{where}" must name an environment variable; the one that it names is not set')
    return found


_VARIABLE = regex(r"\$\{([^}]*)\}")
_BARE_TOO = regex(r"\$\{([^}]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_NAME = regex(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_SECRET = regex(r"(?:secret:|(?=input:))(.+)", re.DOTALL)
_PLAIN_NAME = regex(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_CALLER = regex(r"\$\{caller\.([^}]*)\}")
_OF_EDITORS = ("workspaceFolder", "userHome", "pathSeparator")
_LONGEST_DESCRIPTION = 300
_ONE_VALUE = 3
"""Parts of a text that is one value of the caller: it, and nothing before and after it."""


class NoSecret(NotSetYet):
    """An entry that uses a secret that is not stored, or cannot be read."""

    kind = FailureKind.UNSTORED


@dataclass(frozen=True)
class SecretValues:
    """Stored secrets by name, and why some cannot be read. A secret in neither is not stored."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    problems: Mapping[str, str] = field(default_factory=dict)


LookUp = Callable[[Collection[str]], SecretValues]
"""Finds stored secrets by name. Called once per file, and only if the file uses any."""


def nothing_stored(_: Collection[str]) -> SecretValues:
    return SecretValues()


@dataclass(frozen=True)
class Variables:
    """The values of variables, and a file's descriptions of the inputs that it asks for."""

    environment: Mapping[str, str] = field(repr=False)
    secrets: SecretValues = SecretValues()
    inputs: Mapping[str, str] = field(default_factory=dict)
    editor: Mapping[str, str] = field(default_factory=dict)
    """Editors' variables with known values, such as `userHome`."""
    bare_too: bool = False
    """Whether `$VAR` is a variable as well; an unset one is left unchanged."""


def input_descriptions(document: Mapping[str, Any]) -> dict[str, str]:
    """The descriptions of VS Code's inputs, by id."""
    nested = document.get("mcp")
    inputs = document.get("inputs", nested.get("inputs") if isinstance(nested, dict) else None)
    found = [one for one in inputs if isinstance(one, dict)] if isinstance(inputs, list) else []
    return {
        one["id"]: " ".join(one["description"].split())[:_LONGEST_DESCRIPTION]
        for one in found
        if isinstance(one.get("id"), str) and isinstance(one.get("description"), str)
    }


def secrets_used(value: Any) -> set[str]:
    """The names of all secrets in a value."""
    matches = (_SECRET.fullmatch(expression) for text in _texts(value) for expression in _VARIABLE.findall(text))
    return {match.group(1) for match in matches if match is not None}


def variables_used(entries: Mapping[str, Any]) -> set[str]:
    """The names of all environment variables that the entries of a server file use."""
    found = {match.group(1) for text in _texts(dict(entries)) for match in _matches(text)}
    for entry in entries.values():
        given = entry if isinstance(entry, dict) else {}
        named = given.get("env_http_headers")
        others = [given.get("bearer_token_env_var"), *(named.values() if isinstance(named, dict) else ())]
        found |= {name for name in others if isinstance(name, str) and _PLAIN_NAME.fullmatch(name)}
    return found


def _matches(text: str) -> Iterator[re.Match[str]]:
    for expression in _VARIABLE.findall(text):
        match = _NAME.fullmatch(expression)
        if match is not None and not expression.startswith(_OF_EDITORS):
            yield match


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def expanded(value: Any, where: str, variables: Variables) -> Any:
    """A value with the variables in all its strings replaced. `where`: its key, for messages."""
    if isinstance(value, str):
        pattern = _BARE_TOO if variables.bare_too else _VARIABLE
        return pattern.sub(lambda match: _replaced(match, where, variables), value)
    if isinstance(value, list):
        return [expanded(item, where, variables) for item in value]
    if isinstance(value, dict):
        return {key: expanded(item, f"{where}.{key}", variables) for key, item in value.items()}
    return value


def with_caller(kind: str, given: Any, variables: Variables) -> tuple[Any, tuple[CallerText, ...]]:
    """The headers or variables of an entry without those that have values of the caller in them, and these."""
    if not isinstance(given, dict):
        return given, ()
    found = {
        name: text for name, text in given.items() if isinstance(text, str) and _OF_CALLER.search(text) is not None
    }
    texts = tuple(CallerText(kind, name, _pieces(text, f"{kind}.{name}", variables)) for name, text in found.items())
    return {name: text for name, text in given.items() if name not in found}, texts


def _pieces(text: str, where: str, variables: Variables) -> tuple[str | CallerField, ...]:
    """The parts of a text in their order: constant ones, whose variables are replaced, and values of the caller."""
    parts = _OF_CALLER.split(text)
    is_whole = len(parts) == _ONE_VALUE and not (parts[0] or parts[-1])
    pieces: list[str | CallerField] = []
    for at, part in enumerate(parts):
        if at % 2:
            if problem := problem_of(part, is_whole=is_whole):
                raise UnusableEntry(f'"{where}" uses ${{caller.{part}}}, which {problem}')
            pieces.append(CallerField(part))
        elif part:
            pieces.append(expanded(part, where, variables))
    return tuple(pieces)


def _replaced(match: re.Match[str], where: str, variables: Variables) -> str:
    if match.group(1) is None:
        return variables.environment.get(match.group(2), match.group())
    return _replacement(match.group(1), where, variables)


def _replacement(expression: str, where: str, variables: Variables) -> str:
    if secret := _SECRET.fullmatch(expression):
        return _secret(secret.group(1), f'"{where}" uses ${{{expression}}}', variables)
    if expression.startswith("caller."):
        raise UnusableEntry(
            f'"{where}" uses ${{{expression}}}, and only values of "headers", or of "env" with a "command", may do so'
        )
    if expression in variables.editor:
        return variables.editor[expression]
    match = _NAME.fullmatch(expression)
    if expression.startswith("workspaceFolder"):
        raise UnusableEntry(
            f'"{where}" uses ${{{expression}}}, the folder that is open in an editor; write the path of the folder'
        )
    if match is None:
        raise UnusableEntry(
            f'"{where}" uses ${{{expression}}}, which only the original client can replace; '
            "use ${VAR}, ${VAR:-default}, ${env:VAR} or ${secret:NAME}"
        )
    name, default = match.groups()
    # As in a shell, `:-` also replaces an empty value.
    found = variables.environment.get(name)
    if found in (f"${name}", f"${{{name}}}", f"${{env:{name}}}"):
        # An unset variable's reference, which the client should have replaced.
        found = None
    if default is not None:
        return found or default
    if not found:
        state = "is empty" if found == "" else "is not set"
        raise VariableNotSet(
            f'"{where}" uses ${{{name}}}, but the environment variable {name} {state}; set it where your client is '
            f"started, or run `mcp-optimizer secret set {name}` and write ${{secret:{name}}}. If it may be missing, "
            f"write ${{{name}:-}}"
        )
    return found


def _secret(name: str, used: str, variables: Variables) -> str:
    if (value := variables.secrets.values.get(name)) is not None:
        return value
    if problem := variables.secrets.problems.get(name):
        raise NoSecret(f"{used}, which cannot be read: {problem}")
    asked = variables.inputs.get(name.removeprefix("input:")) if name.startswith("input:") else None
    described = f" ({asked})" if asked else ""
    raise NoSecret(f"{used}{described}, which is not stored; run `mcp-optimizer secret set {shlex.quote(name)}`")
