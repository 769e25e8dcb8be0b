"""The official conformance suite: installs it from npm, runs it against a URL and reads its results.

It needs Node 22, which can be installed from npm too. Both are kept in a folder that git ignores.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".node"
SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
REVISIONS = ("2025-11-25", "2026-07-28")
_NODE = 22
_INSTALL_SECONDS = 300
_RUN_SECONDS = 300

_PLATFORMS = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "arm64"): "darwin-arm64",
}


class NotAvailable(Exception):
    """The suite cannot be installed or run here; the message gives the reason."""


@dataclass(frozen=True)
class Found:
    """The results of one run: the names of the checks that passed, and of those that failed, with the reason."""

    passed: frozenset[str]
    failed: dict[str, str]


def get_suite() -> list[str]:
    """The command that runs the suite, which is installed if necessary."""
    script = FOLDER / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    node = get_node()
    install_unless(script.exists, SUITE)
    if not script.exists():
        raise NotAvailable(f"npm did not install {SUITE} in {FOLDER}")
    return [node, str(script)]


def get_node() -> str:
    """A Node that is new enough, installed if necessary."""
    if not _node():
        install_unless(lambda: bool(_node()), _node_package())
    if not (node := _node()):
        raise NotAvailable(f"npm did not install Node {_NODE} in {FOLDER}")
    return node


def install_unless(is_there: Callable[[], bool], package: str) -> None:
    """Install a package that is not there yet. If several processes need it, one installs it and the others wait."""
    if is_there():
        return
    with _alone():
        if not is_there():
            _npm_install(package)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _npm_install(package: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotAvailable("npm is not installed")
    command = [npm, "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", "--fetch-retries=1", package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"npm did not finish within {_INSTALL_SECONDS} s") from None
    if done.returncode:
        raise NotAvailable(f"npm could not install {package}: {done.stderr.strip()[-300:]}")


def _node_package() -> str:
    system = _PLATFORMS.get((platform.system(), platform.machine()))
    if system is None:
        raise NotAvailable(f"Node {_NODE} is not installed")
    return f"node-{system}@{_NODE}"


def _node() -> str:
    carried = sorted(FOLDER.glob("node_modules/node-*/bin/node"))
    if carried:
        return str(carried[0])
    return "node" if _new_enough("node") else ""


def _new_enough(node: str) -> bool:
    if shutil.which(node) is None:
        return False
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return version.removeprefix("v").partition(".")[0].isdecimal() and int(version[1:].partition(".")[0]) >= _NODE


def run_suite(command: Sequence[str], url: str, revision: str) -> Found:
    """Run everything that a revision requires."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["server", "--url", url, "--requirements", revision, "-o", folder]
        subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=_RUN_SECONDS, check=False, cwd=folder
        )
        return read_results(Path(folder))


def read_results(folder: Path) -> Found:
    """Read the checks of a run. A check that both passed and failed counts as failed."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    for path in sorted(folder.glob("server-*/checks.json")):
        # server-NAME-2026-11-15T07-37-46-376Z
        scenario = path.parent.name.removeprefix("server-")[: -len("-2026-11-15T07-37-46-376Z")]
        for check in json.loads(path.read_text(encoding="utf-8")):
            name = f"{scenario}/{check['id']}/{check['name']}"
            if check["status"] == "SUCCESS":
                passed.add(name)
            elif check["status"] in ("FAILURE", "WARNING"):
                failed[name] = str(check.get("errorMessage"))
    if not passed:
        raise NotAvailable("the suite ran no check at all")
    return Found(frozenset(passed - failed.keys()), failed)
