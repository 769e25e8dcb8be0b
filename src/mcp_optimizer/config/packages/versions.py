"""Asks npm, uv or pip, as the user has set them up, for the newest version of a package. Runs those programs only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Collection
from pathlib import Path

from mcp_optimizer.config.packages.commands import Package, PackageKind, check_identifier, is_exact
from mcp_optimizer.errors import ConfigurationError

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
