"""Unpacks bundles (MCPB files: a zip with manifest.json) into a folder of ours, and turns their manifests into drafts.
Trusts nothing in them.

The whole table of contents is checked before anything is written. Called by `add`.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import shutil
import stat
import struct
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path, PurePath
from typing import Any

from mcp_optimizer.config.packages.draft import (
    MOST_ITEMS,
    Argument,
    Draft,
    Gap,
    InputFormat,
    Pieces,
    WantedInput,
    clean,
    described,
    environment_name,
    suggested_name,
    wanted_of,
    warnings_of,
)
from mcp_optimizer.errors import ConfigurationError, quoted
from mcp_optimizer.runtime.patterns import regex

# Turns the manifest of a bundle into a draft: its command, the folder it is unpacked into, its questions.

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


MOST_PACKED = 300 * 1024 * 1024
"""Maximum bytes of a bundle."""
MOST_UNPACKED = 1024 * 1024 * 1024
MOST_FILES = 30_000
_MOST_CONTENTS = 16 * 1024 * 1024
"""Maximum bytes of the table of contents, read before the zip module builds a list of it."""
_MOST_RATIO = 200
"""Maximum ratio of unpacked to packed bytes, higher than any real bundle has."""
_FREE_OF_RATIO = 16 * 1024 * 1024
_MOST_MANIFEST = 1024 * 1024
_LONGEST_PATH = 400
_DEEPEST = 40
_PIECE = 1024 * 1024

_END = b"PK\x05\x06"
_END_SIZE = 22
_LONGEST_COMMENT = 65_535
_END_OF_LARGE = b"PK\x06\x07"
_END_OF_LARGE_SIZE = 20
_ENCRYPTED = 0x1
_UNREADABLE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError)
"""Errors of the zip module for files that are broken, on purpose or not."""
_RESERVED = regex(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_BAD_CHARACTERS = regex(r'[\\:*?"<>|]')


@dataclass(frozen=True)
class Bundle:
    """A checked bundle, still packed."""

    path: Path
    sha256: str
    files: frozenset[str]
    manifest: dict[str, Any] = field(repr=False)


def read_bundle(path: Path, sha256: str = "") -> Bundle:
    """Checks a bundle and reads its manifest; writes nothing. `sha256`: the expected digest, if known."""
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigurationError(f"{path} is not a file.")
            found = _digest(file, path)
            if sha256 and found != sha256.lower():
                raise ConfigurationError(
                    f"{path.name} is not the file that was expected: its SHA-256 is {found}, not {sha256.lower()}."
                )
            _check_size_of_contents(file, path)
            with zipfile.ZipFile(file) as archive:
                files = _checked(archive.infolist(), path)
                return Bundle(path, found, files, _manifest(archive, path))
    except FileNotFoundError:
        raise ConfigurationError(f"There is no bundle at {path}.") from None
    except _UNREADABLE as error:
        raise ConfigurationError(f"{path.name} is not a readable bundle ({type(error).__name__}).") from None


def unpacked(bundle: Bundle, folder: Path, name: str) -> Path:
    """Unpacks a bundle below `folder`, under its name and SHA-256, completely or not at all. Returns its folder."""
    target = place_of_bundle(bundle, folder, name)
    if target.is_dir() and not target.is_symlink():
        return target
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder))
    try:
        with bundle.path.open("rb") as file:
            # The file was checked a moment ago, and may have been replaced since.
            if _digest(file, bundle.path) != bundle.sha256:
                raise ConfigurationError(f"{bundle.path} changed while it was added; try again.")
            with zipfile.ZipFile(file) as archive:
                _extract(archive, beside)
        os.replace(beside, target)
    except _UNREADABLE as error:
        raise ConfigurationError(f"{bundle.path.name} cannot be unpacked ({type(error).__name__}).") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def place_of_bundle(bundle: Bundle, folder: Path, name: str) -> Path:
    """The folder of an unpacked bundle."""
    return folder / f"{re.sub(r'[^A-Za-z0-9_-]+', '-', name)[:64]}-{bundle.sha256[:32]}"


def _digest(file: BufferedReader, path: Path) -> str:
    size = os.fstat(file.fileno()).st_size
    if size > MOST_PACKED:
        raise ConfigurationError(f"{path.name} has {size:,} bytes; a bundle has at most {MOST_PACKED:,}.")
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _check_size_of_contents(file: BufferedReader, path: Path) -> None:
    """The zip module creates an object for every entry before they can be counted."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _END_SIZE - _LONGEST_COMMENT - _END_OF_LARGE_SIZE)
    file.seek(start)
    tail = file.read()
    at = len(tail) - _END_SIZE if tail[-_END_SIZE:].startswith(_END) and tail.endswith(b"\0\0") else tail.rfind(_END)
    if at < 0 or at + _END_SIZE > len(tail):
        raise ConfigurationError(f"{path.name} is not a zip file, as bundles are.")
    before = tail[max(0, at - _END_OF_LARGE_SIZE) : at]
    (contents,) = struct.unpack_from("<L", tail, at + 12)
    if before.startswith(_END_OF_LARGE) or contents > _MOST_CONTENTS:
        raise ConfigurationError(f"{path.name} lists too many files; a bundle has at most {MOST_FILES:,}.")


def _checked(entries: list[zipfile.ZipInfo], path: Path) -> frozenset[str]:
    """The files of a bundle, if all its contents can be unpacked safely."""
    if len(entries) > MOST_FILES:
        raise ConfigurationError(f"{path.name} has {len(entries):,} files; a bundle has at most {MOST_FILES:,}.")
    seen: dict[str, str] = {}
    files: set[str] = set()
    total, packed = 0, 0
    for entry in entries:
        name = _checked_name(entry)
        key = _folded(name)
        if key in seen:
            raise ConfigurationError(f"The bundle has {quoted(name)} twice; the other is {quoted(seen[key])}.")
        seen[key] = name
        total, packed = total + entry.file_size, packed + entry.compress_size
        if not entry.is_dir():
            files.add(name)
    if total > MOST_UNPACKED or (total > _FREE_OF_RATIO and total > packed * _MOST_RATIO):
        raise ConfigurationError(f"{path.name} unpacks to {total:,} bytes, which is too much for its size or at all.")
    folded = {_folded(name) for name in files}
    for name in seen:
        parents = name.split("/")[:-1]
        if any("/".join(parents[: depth + 1]) in folded for depth in range(len(parents))):
            raise ConfigurationError(f"The bundle has {quoted(seen[name])} inside of a file.")
    return frozenset(files)


def _folded(name: str) -> str:
    """The same text for names that are one file on some systems."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _checked_name(entry: zipfile.ZipInfo) -> str:
    # The zip module truncates `filename` at a null character.
    name = entry.orig_filename
    plain = name.removesuffix("/")
    parts = plain.split("/")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    is_plain = kind in (0, stat.S_IFDIR if entry.is_dir() else stat.S_IFREG)
    if not is_plain:
        raise ConfigurationError(f"The bundle has {quoted(name)}, which is a link or a device.")
    if entry.flag_bits & _ENCRYPTED:
        raise ConfigurationError(f"The bundle has {quoted(name)} encrypted.")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ConfigurationError(f"The bundle has {quoted(name)} packed in an unusual way.")
    is_usable = plain.isprintable() and len(plain.encode(errors="replace")) <= _LONGEST_PATH and len(parts) <= _DEEPEST
    if not is_usable or _BAD_CHARACTERS.search(plain) or not all(map(_is_usable_part, parts)):
        raise ConfigurationError(f"The bundle has a path that leaves its folder or cannot be used: {quoted(name)}.")
    return plain


def _is_usable_part(part: str) -> bool:
    return part not in ("", ".", "..") and part[-1] not in ". " and not _RESERVED.fullmatch(part)


def _manifest(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    try:
        with archive.open("manifest.json") as file:
            text = file.read(_MOST_MANIFEST + 1)
    except KeyError:
        raise ConfigurationError(f"{path.name} has no manifest.json, so it is not a bundle.") from None
    if len(text) > _MOST_MANIFEST:
        raise ConfigurationError(f"The manifest of {path.name} has more than {_MOST_MANIFEST:,} bytes.")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigurationError(f"The manifest of {path.name} is not valid JSON.") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"The manifest of {path.name} is not an object.")
    return found


def _extract(archive: zipfile.ZipFile, folder: Path) -> None:
    for entry in archive.infolist():
        target = folder / _checked_name(entry)
        if entry.is_dir():
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            continue
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = 0o700 if (entry.external_attr >> 16) & stat.S_IXUSR else 0o600
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
        with os.fdopen(descriptor, "wb") as written, archive.open(entry) as packed:
            shutil.copyfileobj(packed, written, _PIECE)
