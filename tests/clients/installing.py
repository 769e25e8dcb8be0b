"""Puts clients from npm and PyPI, in the versions of `versions.toml`, into a folder that git ignores.

No script of a package is run on the way: a client is started by what its package carries. What cannot be had is said
with its reason (`NotAvailable`), for the suite to skip it.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conformance.suite import ROOT, NotAvailable, get_node

FOLDER = ROOT / ".clients"
_VERSIONS = Path(__file__).with_name("versions.toml")
_SECONDS = 400
_MACHINES = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_NEW_ENOUGH = (3, 12)
"""Python that the clients from PyPI want."""


def versions() -> dict[str, Any]:
    return tomllib.loads(_VERSIONS.read_text(encoding="utf-8"))


def native() -> str:
    """The end of the names of npm packages that carry a program for this machine, such as linux-arm64."""
    machine = _MACHINES.get(platform.machine())
    if machine is None or platform.system() not in ("Linux", "Darwin"):
        raise NotAvailable(f"there is no client for {platform.system()} on {platform.machine()}")
    return f"{platform.system().lower()}-{machine}"


def package_folder(package: str) -> Path:
    return FOLDER / "npm" / "node_modules" / package


def install_from_npm(packages: Sequence[str]) -> str:
    """Install those that are not there in their version. Returns the Node that runs them."""
    node = get_node()
    wanted = versions()["npm"]
    if all(_installed(package) == wanted[package] for package in packages):
        return node
    npm = shutil.which("npm")
    if npm is None:
        raise NotAvailable("npm is not installed")
    (FOLDER / "npm").mkdir(parents=True, exist_ok=True)
    # npm removes what is neither wanted nor saved, so what is there already is named again.
    present = [package for package in wanted if package not in packages and _installed(package) == wanted[package]]
    named = [f"{package}@{wanted[package]}" for package in (*packages, *present)]
    quiet = ["--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--fetch-retries=1"]
    _run([npm, "install", "--prefix", str(FOLDER / "npm"), *quiet, *named])
    return node


def _installed(package: str) -> str:
    about = package_folder(package) / "package.json"
    return str(json.loads(about.read_text(encoding="utf-8"))["version"]) if about.exists() else ""


def install_from_pypi(name: str) -> Path:
    """The folder of programs of an environment that has these packages."""
    wanted: list[str] = versions()["pypi"][name]
    folder = FOLDER / f"pypi-{name}"
    done = folder / "installed.json"
    if not done.exists() or json.loads(done.read_text(encoding="utf-8")) != wanted:
        python = _new_python()
        _run([python, "-m", "venv", "--clear", str(folder)])
        quiet = ["--quiet", "--disable-pip-version-check", "--retries", "1"]
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", *quiet, *wanted])
        done.write_text(json.dumps(wanted), encoding="utf-8")
    return folder / "bin"


def _new_python() -> str:
    if sys.version_info >= _NEW_ENOUGH:
        return sys.executable
    found = [shutil.which(f"python3.{minor}") for minor in (12, 13)]
    found += map(str, sorted(Path.home().glob(".pyenv/versions/3.1[23].*/bin/python")))
    for one in filter(None, found):
        # One that pyenv put on the path may be of a version that is switched off.
        if subprocess.run([one, "--version"], capture_output=True, check=False).returncode == 0:
            return one
    raise NotAvailable(f"there is no Python {_NEW_ENOUGH[0]}.{_NEW_ENOUGH[1]}")


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"{command[0]} did not finish within {_SECONDS} s") from None
    if done.returncode:
        raise NotAvailable(f"{Path(command[0]).name} could not install: {' '.join(done.stderr.split())[-300:]}")
