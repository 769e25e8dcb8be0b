"""Finds out how to run a source: asks registries, indexes and package programs, fetches bundles. Called by `add`.

The result is a draft: nothing was started, and a bundle is at most in the workspace, still packed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from mcp_optimizer.config.packages.bundles import (
    MOST_PACKED,
    Bundle,
    Surroundings,
    draft_of_manifest,
    manifest_name,
    place_of_bundle,
    read_bundle,
)
from mcp_optimizer.config.packages.commands import (
    Package,
    PackageKind,
    check_identifier,
    is_exact,
    named_package,
    with_command,
)
from mcp_optimizer.config.packages.draft import Draft, Source, SourceKind, suggested_name, words
from mcp_optimizer.config.packages.fetching import downloaded
from mcp_optimizer.config.packages.registry import PUBLIC_REGISTRY, BundleAt, Registry, ServerCondition, draft_of
from mcp_optimizer.errors import ConfigurationError, quoted
from mcp_optimizer.runtime.outgoing import is_this_machine

# Asks npm, uv or pip, as the user has set them up, for the newest version of a package. Runs those programs only.

_SECONDS = 60.0
_AFTER_KILL = 5.0
_MOST_BYTES = 256 * 1024


async def newest_version(package: Package, programs: Collection[str]) -> str:
    """The exact newest version of a package. Raises ConfigurationError if it cannot be determined."""
    check_identifier(package)
    name = package.identifier
    found = ""
    if package.kind is PackageKind.NPM and "npm" in programs:
        found = _json_text(await _output("npm", "view", name, "version", "--json"))
    elif package.kind is PackageKind.PYPI:
        found = await _of_pypi(name, programs)
    if found and is_exact(package.kind, found):
        return found
    how = {PackageKind.NPM: f"npm:{name}@1.2.3", PackageKind.PYPI: f"pypi:{name}==1.2.3"}.get(package.kind, "")
    raise ConfigurationError(
        f"The newest version of {name} cannot be found out here; name an exact one with --version"
        f"{f', or as {how}' if how else ''}."
    )


async def _of_pypi(name: str, programs: Collection[str]) -> str:
    if "uv" in programs:
        # Without building: finding a version must not run any code of the package.
        text = await _output(
            *"uv pip compile --quiet --no-build --no-deps --no-header --no-annotate -".split(), given=name
        )
        if match := re.search(r"^[A-Za-z0-9._-]+==(\S+)", text, re.MULTILINE):
            return match.group(1)
    if "pip" in programs:
        text = await _output("pip", "index", "versions", "--disable-pip-version-check", name)
        if match := re.match(r"\S+ \(([^)\s]+)\)", text):
            return match.group(1)
    return ""


def _json_text(text: str) -> str:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


async def _ended(process: asyncio.subprocess.Process, printed: asyncio.StreamReader) -> None:
    """Wait for a killed program to end, for a limited time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_AFTER_KILL):
            # Until a full buffer is read, neither the end of the output nor that of the program is noticed.
            while await printed.read(_MOST_BYTES):
                pass
            await process.wait()


async def _output(*command: str, given: str = "") -> str:
    """The output of a program; empty if it fails, hangs or prints without end."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            # Not in the current folder: a cloned repository's .npmrc or uv.toml would choose which index they ask, and
            # could send values of the environment there.
            cwd=Path.home(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_SECONDS):
            process.stdin.write(given.encode())
            process.stdin.close()
            printed = b""
            while len(printed) <= _MOST_BYTES and (chunk := await process.stdout.read(_MOST_BYTES)):
                printed += chunk
            if len(printed) > _MOST_BYTES or await process.wait() != 0:
                return ""
            return printed.decode(errors="replace")
    except (TimeoutError, OSError):
        return ""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await _ended(process, process.stdout)


_PROGRAMS = "npx npm uvx uv pipx pip docker podman dnx node python3".split()


@dataclass(frozen=True)
class Choice:
    """The user's choices beyond the source itself."""

    version: str = ""
    package: str = ""
    registry: str = PUBLIC_REGISTRY
    script: str = ""
    sha256: str = ""
    runs_anything: bool = False
    """Whether to allow runtimes and options that might run more than the package."""


@dataclass(frozen=True)
class Places:
    """Folders: where bundles are unpacked, and where a download is kept until then."""

    bundles: Path
    workspace: Path


@dataclass(frozen=True)
class FoundServer:
    """How to run a source, and the bundle that must be unpacked for it."""

    draft: Draft
    bundle: Bundle | None = None


def installed_programs() -> frozenset[str]:
    """The runtimes installed on this machine."""
    return frozenset(name for name in _PROGRAMS if shutil.which(name))


async def find_server(source: Source, choice: Choice, places: Places, programs: Collection[str]) -> FoundServer:
    """How to run a source on this machine."""
    if source.kind is SourceKind.BUNDLE:
        return await _of_bundle(source.text, choice.sha256, source, choice, places)
    if choice.sha256:
        raise ConfigurationError("--sha256 is for bundles; packages are checked by their own tools.")
    if source.kind is SourceKind.REGISTRY:
        return await _of_registry(source, choice, places, programs)
    if source.kind is SourceKind.COMMAND:
        command, *rest = source.words
        return FoundServer(Draft(source.text, command=command, args=words(rest)))
    if source.kind is SourceKind.URL:
        return FoundServer(_of_url(source.text))
    return FoundServer(await _of_package(source, choice, programs))


def _of_url(url: str) -> Draft:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or not url.isprintable() or " " in url:
        raise ConfigurationError(f"{quoted(url)} is not an address that can be used.")
    is_open = url.startswith("http://") and not is_this_machine(host)
    notes = ("It is not encrypted: anyone on the network path can read and change everything.",) if is_open else ()
    return Draft(suggested_name(url), url=(url,), notes=notes)


async def _of_package(source: Source, choice: Choice, programs: Collection[str]) -> Draft:
    package = named_package(PackageKind(source.kind.value), source.text)
    if choice.version:
        if package.version and package.version != choice.version:
            raise ConfigurationError(f"--version {choice.version} contradicts {quoted(source.text)}.")
        package = replace(package, version=choice.version)
    if not package.version and package.kind is not PackageKind.OCI:
        package = replace(package, version=await newest_version(package, programs))
    package = replace(package, script=choice.script, arguments=words(source.words))
    return with_command(Draft(suggested_name(source.text)), package, programs)


async def _of_registry(source: Source, choice: Choice, places: Places, programs: Collection[str]) -> FoundServer:
    listed = await Registry(choice.registry).server(source.text, choice.version)
    why = f": {listed.message}" if listed.message else "."
    if listed.condition is ServerCondition.DELETED:
        raise ConfigurationError(f"{listed.name} {listed.version} was deleted from the registry{why}")
    found = draft_of(listed.document, choice.package, programs, runs_anything=choice.runs_anything)
    if isinstance(found, BundleAt):
        return await _of_bundle(found.url, found.sha256, source, choice, places)
    if source.words and found.url:
        raise ConfigurationError("A server at an address takes no arguments.")
    notes = found.notes
    if listed.condition is ServerCondition.DEPRECATED:
        notes = (f"Its author calls it deprecated{why}", *notes)
    return FoundServer(replace(found, args=(*found.args, *words(source.words)), notes=notes))


async def _of_bundle(place: str, sha256: str, source: Source, choice: Choice, places: Places) -> FoundServer:
    path = Path(place).expanduser()
    if place.startswith(("http://", "https://")):
        path = places.workspace / "downloaded.mcpb"
        named_by = choice.registry if source.kind is SourceKind.REGISTRY else ""
        await downloaded(place, path, MOST_PACKED, named_by)
    elif source.kind is SourceKind.REGISTRY:
        raise ConfigurationError(f"The registry names {quoted(place)} as a bundle, which is not an address.")
    bundle = await asyncio.to_thread(read_bundle, path, sha256)
    folder = place_of_bundle(bundle, places.bundles, manifest_name(bundle.manifest))
    around = Surroundings(folder, Path.home(), sys.platform)
    draft = draft_of_manifest(bundle.manifest, bundle.files, around, runs_anything=choice.runs_anything)
    return FoundServer(replace(draft, args=(*draft.args, *words(source.words))), bundle)
