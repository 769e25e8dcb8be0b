"""Finds out how to run a source: asks registries and indexes, fetches bundles. Called by `add`.

The result is a draft: nothing was started, and a bundle is at most in the workspace, still packed.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from mcp_optimizer.config.packages.bundles import MOST_PACKED, Bundle, place_of_bundle, read_bundle
from mcp_optimizer.config.packages.commands import PackageKind, named_package, with_command
from mcp_optimizer.config.packages.draft import Draft, words
from mcp_optimizer.config.packages.fetching import downloaded
from mcp_optimizer.config.packages.manifests import Surroundings, draft_of_manifest, manifest_name
from mcp_optimizer.config.packages.registry import PUBLIC_REGISTRY, Registry, ServerCondition
from mcp_optimizer.config.packages.server_json import BundleAt, draft_of
from mcp_optimizer.config.packages.sources import Source, SourceKind, suggested_name
from mcp_optimizer.config.packages.versions import newest_version
from mcp_optimizer.errors import ConfigurationError, quoted
from mcp_optimizer.runtime.outgoing import is_this_machine

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
