"""Installs a built wheel in every documented way, starts it there, and measures each: pip, uvx, pipx, and pip beside
the package whose name is like ours.

    python scripts/try_installs.py [--wheel FILE] [--if-possible] [--write] [WAY ...]

Without --wheel, it is the one in dist/. Each way gets an empty home and empty caches, so times include every download.
--write puts the table into benchmarks/results/installing.md. With --if-possible, a way whose tools cannot be fetched
here is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
RESULTS = ROOT / "benchmarks" / "results" / "installing.md"
OURS = "mcp-optimizer-gateway"
OTHER = "mcp-optimizer"
LIMIT_OF_FILES = 300_000_000
"""Bytes that an installation may bring, without the bytecode that pip makes of them."""
LIMIT_OF_WHEEL = 30_000_000
_SECONDS = 600


class NotPossible(Exception):
    """A tool or package that this way needs cannot be fetched here."""


@dataclass(frozen=True)
class Installed:
    """One installation: the command that starts it, and the folder with its packages."""

    command: Sequence[str]
    packages: Path
    note: str = ""


@dataclass(frozen=True)
class Tried:
    """What was measured of one way."""

    way: str
    seconds: float
    files: int
    bytecode: int
    first_start: float
    note: str


class Machine:
    """A fresh machine, as far as a folder can be one: nothing but Python, an empty home, and no cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # PIP_ and UV_ say where packages come from on this machine; nothing else of ours is passed on.
        kept = ("PATH", "LANG", "SSL_", "PIP_CERT", "PIP_INDEX", "PIP_EXTRA", "PIP_FIND", "UV_INDEX", "UV_DEFAULT")
        self.environment = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        self.environment |= {"HOME": str(folder), "USERPROFILE": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        self.environment |= {"XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
        self.environment |= {"UV_CACHE_DIR": str(folder / "cache" / "uv"), "UV_PYTHON_DOWNLOADS": "never"}
        # Else its files are links into the cache.
        self.environment |= {"UV_LINK_MODE": "copy"}
        self.environment |= {"PIPX_HOME": str(folder / "pipx"), "PIPX_BIN_DIR": str(folder / "bin")}

    def run(self, *command: object, more: Mapping[str, str] | None = None) -> str:
        words = [str(word) for word in command]
        environment = self.environment | dict(more or {})
        done = subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode:
            raise SystemExit(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}\nended with code {done.returncode}")
        return done.stdout

    def environment_of_python(self, name: str) -> Path:
        """A virtual environment. Returns its folder of programs."""
        self.run(sys.executable, "-m", "venv", self.folder / name)
        return self.folder / name / ("Scripts" if os.name == "nt" else "bin")

    def fetch(self, programs: Path, *packages: str) -> None:
        """Install packages of others; that this fails is no fault of ours."""
        try:
            self.run(programs / "python", "-m", "pip", "install", "--quiet", *packages)
        except SystemExit as problem:
            raise NotPossible(f"{' '.join(packages)} cannot be installed here: {str(problem)[-200:]}") from problem


def packages_of(folder: Path) -> Path:
    """Where the packages are in an environment; uv's cache has each of them alone, too."""
    return next(path.parent for path in folder.rglob("mcp_optimizer_gateway") if (path.parent / "numpy").is_dir())


def with_pip(machine: Machine, wheel: Path) -> Installed:
    programs = machine.environment_of_python("venv")
    machine.run(programs / "python", "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, wheel)
    return Installed([str(programs / OURS)], packages_of(machine.folder / "venv"))


def with_uvx(machine: Machine, wheel: Path) -> Installed:
    programs = machine.environment_of_python("tools")
    machine.fetch(programs, "uv")
    command = [str(programs / "uvx"), "--quiet", "--constraints", str(CONSTRAINTS), "--from", str(wheel), OURS]
    return Installed(command, machine.folder / "cache" / "uv", "the first start installs it")


def with_pipx(machine: Machine, wheel: Path) -> Installed:
    programs = machine.environment_of_python("tools")
    machine.fetch(programs, "pipx")
    # pip, not uv: whichever pipx would take depends on what else is installed.
    arguments = f"--constraint {CONSTRAINTS}"
    more = {"PIPX_DEFAULT_BACKEND": "pip"}
    machine.run(programs / "pipx", "install", "--quiet", f"--pip-args={arguments}", wheel, more=more)
    return Installed([str(machine.folder / "bin" / OURS)], packages_of(machine.folder / "pipx"))


def beside(other_first: bool) -> Callable[[Machine, Path], Installed]:
    """Both packages in one environment; the later one has overwritten files of the earlier one."""

    def install(machine: Machine, wheel: Path) -> Installed:
        programs = machine.environment_of_python("venv")
        ours = (programs / "python", "-m", "pip", "install", "--quiet", wheel)
        if not other_first:
            machine.run(*ours)
        machine.fetch(programs, OTHER)
        if other_first:
            machine.run(*ours)
        version = machine.run(programs / "python", "-c", f"import importlib.metadata as m; print(m.version({OTHER!r}))")
        return Installed([str(programs / OURS)], packages_of(machine.folder / "venv"), f"{OTHER} {version.strip()}")

    return install


WAYS: Mapping[str, Callable[[Machine, Path], Installed]] = {
    "pip": with_pip,
    "uvx --from": with_uvx,
    "pipx": with_pipx,
    "pip, after the other package": beside(other_first=True),
    "pip, before the other package": beside(other_first=False),
}


def sizes(folder: Path) -> tuple[int, int]:
    """Bytes of the files below a folder, and of the bytecode among them; pip and setuptools, which are in every new
    environment, are left out."""
    files = bytecode = 0
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        if path.relative_to(folder).parts[0].startswith(("pip", "setuptools", "pkg_resources", "_distutils_hack")):
            continue
        if path.suffix == ".pyc":
            bytecode += path.stat().st_size
        else:
            files += path.stat().st_size
    return files, bytecode


def use(machine: Machine, installed: Installed, version: str) -> float:
    """Start it, find a tool, call it, and write a client's entry. Returns the seconds of the first start."""
    began = time.monotonic()
    said = machine.run(*installed.command, "--version")
    first = time.monotonic() - began
    assert said.strip() == f"mcp-optimizer {version}", said
    demo = ("--demo", "--servers", "kanban", "--json")
    found = json.loads(machine.run(*installed.command, "find", "move a card to another column", *demo))
    assert found["tools"][0]["name"] == "move_card", found
    called = json.loads(machine.run(*installed.command, "call", "list_boards", *demo))
    assert called["content"][0]["text"], called
    connects(machine, installed, version)
    return first


def connects(machine: Machine, installed: Installed, version: str) -> None:
    """A client's entry names this program so that nothing else can be started in its place."""
    folder = machine.folder / ".cursor"
    folder.mkdir(exist_ok=True)
    machine.run(*installed.command, "init", machine.folder / "mcp.json")
    machine.run(*installed.command, "connect", "cursor", "--config", machine.folder / "mcp.json", "--yes")
    entry = json.loads((folder / "mcp.json").read_text(encoding="utf-8"))["mcpServers"]["mcp-optimizer"]
    assert Path(entry["command"]).is_absolute(), entry
    assert Path(entry["command"]).stem == OURS or entry["args"][0] == f"{OURS}@{version}", entry


def attempt(way: str, wheel: Path) -> Tried:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder).resolve())
        began = time.monotonic()
        installed = WAYS[way](machine, wheel)
        seconds = time.monotonic() - began
        first = use(machine, installed, wheel.name.split("-")[1])
        note = installed.note
        if way.startswith("pip, "):
            said = machine.run(*installed.command, "doctor", "--demo", "--json", "--servers", "kanban")
            assert OTHER in json.loads(said)["environment"], said
            note += "; doctor names it"
        packages = installed.packages if way != "uvx --from" else packages_of(installed.packages)
        return Tried(way, seconds, *sizes(packages), first, note)


def attempts(wheel: Path, ways: Sequence[str], if_possible: bool) -> Iterator[Tried]:
    for way in ways:
        try:
            tried = attempt(way, wheel)
        except NotPossible as problem:
            if not if_possible:
                raise SystemExit(f"{way}: {problem}") from problem
            print(f"{way}: left out; {problem}", flush=True)
            continue
        print(row(tried), flush=True)
        if tried.files > LIMIT_OF_FILES and "other" not in way:
            raise SystemExit(f"{way}: {tried.files / 1e6:.0f} MB are more than {LIMIT_OF_FILES / 1e6:.0f}")
        yield tried


def row(tried: Tried) -> str:
    made = f"{tried.bytecode / 1e6:.0f} MB"
    return (
        f"| {tried.way} | {tried.seconds:.0f} s | {tried.files / 1e6:.0f} MB | {made} | {tried.first_start:.1f} s "
        f"| {tried.note} |"
    )


def page(wheel: Path, rows: Sequence[Tried]) -> str:
    about = f"Python {platform.python_version()} on {platform.system()} ({platform.machine()}), {os.cpu_count()} cores"
    return "\n".join(
        [
            "# Installing",
            "",
            f"`python scripts/try_installs.py --write` with {wheel.name}, {about}",
            "",
            f"The wheel has {wheel.stat().st_size / 1e6:.1f} MB. Each way began with an empty home and empty caches;",
            "its time includes a new environment, the installer and every download. There the program started, found a",
            "tool of the demo, called it, and wrote Cursor's entry. Sizes are the bytes of files in the folder of",
            "packages, without pip and setuptools; pip compiles all that it installs, uv what is imported.",
            "",
            "| way | installed in | files | bytecode | first start | |",
            "|---|---:|---:|---:|---:|---|",
            *map(row, rows),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wheel", type=Path, default=next((ROOT / "dist").glob("*.whl"), None))
    parser.add_argument("ways", nargs="*", default=list(WAYS), metavar="WAY")
    parser.add_argument("--if-possible", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.wheel is None:
        raise SystemExit("there is no wheel in dist/; make wheel-check builds it")
    wheel = options.wheel.resolve()
    if wheel.stat().st_size > LIMIT_OF_WHEEL:
        raise SystemExit(f"{wheel.name} has {wheel.stat().st_size / 1e6:.1f} MB, more than {LIMIT_OF_WHEEL / 1e6:.0f}")
    rows = list(attempts(wheel, options.ways, options.if_possible))
    if options.write:
        RESULTS.write_text(page(wheel, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
