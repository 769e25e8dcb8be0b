"""Turns the manifest of a bundle into a draft: its command, the folder it is unpacked into, its questions. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from mcp_optimizer.config.packages.draft import Argument, Draft, Gap, InputFormat, Pieces, WantedInput, wanted_of
from mcp_optimizer.config.packages.sources import suggested_name
from mcp_optimizer.config.packages.untrusted_text import MOST_ITEMS, clean, described, environment_name, warnings_of
from mcp_optimizer.errors import ConfigurationError, quoted
from mcp_optimizer.runtime.patterns import regex

_VARIABLE = regex(r"\$\{([^}]*)\}")
_KEY = regex(r"[\w.-]{1,150}")
_ANSWER = "user_config."
_IN_SERVER_JSON = {"type": "format", "required": "isRequired", "sensitive": "isSecret", "multiple": "isRepeated"}
_RUNTIMES = frozenset({"node", "python", "python3", "uv", "uvx", "npx", "docker", "podman", "dnx"})
_PLATFORMS = {"linux": "linux", "darwin": "darwin", "win32": "win32", "cygwin": "win32"}


@dataclass(frozen=True)
class Surroundings:
    """Where a bundle will run: its own folder, the user's home, and the system (`sys.platform`)."""

    folder: Path
    home: Path
    platform: str

    def values(self) -> dict[str, str]:
        """The values of a manifest's variables, other than answers."""
        separator = "\\" if self.platform == "win32" else "/"
        named = {name.upper(): str(self.home / name) for name in ("Desktop", "Documents", "Downloads")}
        return {
            "__dirname": str(self.folder),
            "HOME": str(self.home),
            "/": separator,
            "pathSeparator": separator,
            **named,
        }


def manifest_name(manifest: Mapping[str, Any]) -> str:
    """The bundle's own name in the form of a server's name."""
    return suggested_name(clean(manifest.get("name"), "The name of the bundle", 200))


def draft_of_manifest(
    manifest: Mapping[str, Any], files: Collection[str], around: Surroundings, *, runs_anything: bool = False
) -> Draft:
    """The draft of a bundle's server."""
    server = manifest.get("server")
    if not isinstance(server, dict):
        raise ConfigurationError('The manifest of the bundle has no "server".')
    _check_platform(manifest, around.platform)
    config = _config(server, files, around.platform)
    reading = _ManifestReading(manifest, around)
    command = reading.fixed(config.get("command"), "The command of the bundle")
    if not (runs_anything or command in _RUNTIMES or _is_file_of(command, files, around.folder)):
        raise ConfigurationError(
            f"The bundle wants to run {quoted(command)}, which is neither in it nor a known runtime. "
            "If you trust it, give --yes-run."
        )
    args = config.get("args", [])
    env = config.get("env", {})
    if not isinstance(args, list) or not isinstance(env, dict) or max(len(args), len(env)) > MOST_ITEMS:
        raise ConfigurationError(
            '"args" and "env" of the bundle must be a list and an object, of a hundred items at most.'
        )
    texts = {environment_name(name): reading.pieces(value, f"The value of {name}") for name, value in env.items()}
    return Draft(
        name=manifest_name(manifest),
        command=command,
        args=tuple(Argument(reading.pieces(one, "An argument of the bundle")) for one in args),
        env=texts,
        wanted=reading.wanted,
        notes=warnings_of(texts),
        description=described(manifest.get("description")),
        is_foreign=True,
    ).without_unused()


class _ManifestReading:
    """Replaces the variables of a manifest, and collects the inputs that it asks for."""

    def __init__(self, manifest: Mapping[str, Any], around: Surroundings) -> None:
        self._values = around.values()
        asked = manifest.get("user_config") or {}
        if not isinstance(asked, dict) or len(asked) > MOST_ITEMS:
            raise ConfigurationError('"user_config" of the bundle must be an object of a hundred items at most.')
        if odd := [key for key in asked if not _KEY.fullmatch(key)]:
            raise ConfigurationError(f"The bundle asks for {quoted(odd[0])}, which is not a usable name.")
        self.wanted: dict[str, WantedInput] = {
            key: wanted_of(key, self._as_input(said)) for key, said in asked.items() if isinstance(said, dict)
        }

    def fixed(self, text: Any, what: str) -> str:
        pieces = self.pieces(text, what)
        if any(isinstance(piece, Gap) for piece in pieces):
            raise ConfigurationError(f"{what} must not depend on an answer.")
        return "".join(str(piece) for piece in pieces)

    def pieces(self, text: Any, what: str) -> Pieces:
        if not isinstance(text, str):
            # Numbers and booleans, in their JSON form.
            text = str(text).lower() if isinstance(text, bool | int | float) else clean(text, what)
        found: list[str | Gap] = []
        at = 0
        for match in _VARIABLE.finditer(text):
            found += [clean(text[at : match.start()], what), self._meaning(match[1], what)]
            at = match.end()
        found.append(clean(text[at:], what))
        _refuse_leaving(text, what)
        return tuple(piece for piece in _joined(found) if piece != "")

    def _meaning(self, name: str, what: str) -> str | Gap:
        if (value := self._values.get(name)) is not None:
            return value
        key = name.removeprefix(_ANSWER)
        if name.startswith(_ANSWER) and key in self.wanted:
            return Gap(key)
        raise ConfigurationError(f"{what} uses the variable {quoted(name)}, which bundles do not have.")

    def _as_input(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """An input of a bundle in the terms of server.json, with the variables in its default replaced."""
        said = {_IN_SERVER_JSON.get(key, key): value for key, value in asked.items()}
        if said.get("format") in ("directory", "file"):
            said["format"] = InputFormat.PATH
        default = said.get("default")
        several = default if isinstance(default, list) else [default]
        return {**said, "default": [self._known(one) for one in several if one is not None]}

    def _known(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        return _VARIABLE.sub(lambda match: self._values.get(match[1], match[0]), text)


def _joined(pieces: list[str | Gap]) -> list[str | Gap]:
    """Merges adjacent texts."""
    joined: list[str | Gap] = []
    for piece in pieces:
        if joined and isinstance(piece, str) and isinstance(last := joined[-1], str):
            joined[-1] = last + piece
        else:
            joined.append(piece)
    return joined


def _refuse_leaving(text: str, what: str) -> None:
    """A path that starts in the bundle's folder must stay in it."""
    for rest in text.split("${__dirname}")[1:]:
        path = re.sub(r"\$\{(/|pathSeparator)\}|\\", "/", rest)
        if posixpath.normpath(f"a/{path}").split("/")[0] != "a":
            raise ConfigurationError(f"{what} leaves the folder of the bundle: {quoted(text)}.")


def _is_file_of(command: str, files: Collection[str], folder: Path) -> bool:
    try:
        return PurePath(command).relative_to(folder).as_posix() in files
    except ValueError:
        return False


def _check_platform(manifest: Mapping[str, Any], platform: str) -> None:
    compatibility = manifest.get("compatibility")
    platforms = compatibility.get("platforms") if isinstance(compatibility, dict) else None
    if isinstance(platforms, list) and platforms and _PLATFORMS.get(platform, platform) not in platforms:
        raise ConfigurationError("The bundle is not made for this system, but for another.")


def _config(server: Mapping[str, Any], files: Collection[str], platform: str) -> Mapping[str, Any]:
    """How to start it: its own configuration, merged with the one for this system, or the usual one of its type."""
    config = server.get("mcp_config")
    if not isinstance(config, dict):
        return _usual(server, files)
    overrides = config.get("platform_overrides")
    own = overrides.get(_PLATFORMS.get(platform, platform)) if isinstance(overrides, dict) else None
    if not isinstance(own, dict):
        return config
    merged = {**config, **own}
    if isinstance(env := config.get("env"), dict) and isinstance(more := own.get("env"), dict):
        merged["env"] = {**env, **more}
    return merged


def _usual(server: Mapping[str, Any], files: Collection[str]) -> Mapping[str, Any]:
    entry_point = server.get("entry_point")
    if not isinstance(entry_point, str) or entry_point.removeprefix("./") not in files:
        raise ConfigurationError("The bundle neither says how it is started nor which of its files does that.")
    file = f"${{__dirname}}/{entry_point.removeprefix('./')}"
    usual: dict[str, dict[str, Any]] = {
        "node": {"command": "node", "args": [file]},
        "python": {"command": "python3", "args": [file]},
        "uv": {"command": "uv", "args": ["run", "--directory", "${__dirname}", file]},
        "binary": {"command": file},
    }
    if (kind := server.get("type")) not in list(usual):
        raise ConfigurationError("The bundle is of an unknown type; it must be node, python, uv or binary.")
    return usual[str(kind)]
