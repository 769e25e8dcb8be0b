"""Makes the world of the trial: what its servers work on, and their server file.

    python -m benchmarks.agent_trial.world DIR [--from OTHER] [--python PYTHON]

Everything that a task can touch is made anew, so every trial begins with the same world. Without --from, the servers
are installed in DIR from npm and PyPI, which takes minutes; with it, those of the world OTHER are used.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.agent_trial import content, programs
from benchmarks.paths import ROOT

CHANGING = ["files", "repo", "arxiv", "sheets", "t.db", "mem.json", "tasks.json", "bookings.json", "energy.duckdb"]
CHANGING += ["kanban.jsonl"]
"""What servers read and write, relative to the world's folder."""

GATEWAY = ["catalog.db", "catalog.db-wal", "catalog.db-shm", "catalog.db.lock"]
"""What the gateway learned in an earlier trial."""


def servers(world: Path, installed: Path, python: str) -> dict[str, Any]:
    """The server file's entries. `installed` holds the programs, `python` has this project's own servers."""

    def npm(folder: str, name: str, *arguments: str, **environment: str) -> dict[str, Any]:
        return entry(installed / folder / "node_modules" / ".bin" / name, *arguments, **environment)

    def pypi(folder: str, name: str, *arguments: str) -> dict[str, Any]:
        return entry(installed / folder / "bin" / name, *arguments)

    def own(*arguments: str) -> dict[str, Any]:
        return entry(python, *arguments, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}")

    return {
        "filesystem": npm("npm", "mcp-server-filesystem", str(world / "files")),
        "memory": npm("npm", "mcp-server-memory", MEMORY_FILE_PATH=str(world / "mem.json")),
        "playwright": npm("npm", "playwright-mcp", "--headless"),
        "git": pypi("py", "mcp-server-git", "--repository", str(world / "repo")),
        "time": pypi("py", "mcp-server-time", "--local-timezone", "UTC"),
        "sqlite": {
            **pypi("py1", "mcp-server-sqlite", "--db-path", str(world / "t.db")),
            "description": "The trips database: city, nights and cost of each trip",
        },
        "calculator": pypi("py1", "mcp-server-calculator"),
        "arxiv": pypi("py1", "arxiv-mcp-server", "--storage-path", str(world / "arxiv")),
        "kanban": own("-m", "benchmarks.agent_trial.kanban_server", str(world / "kanban.jsonl")),
        "sql": own("-m", "mcp_optimizer_demo.sql"),
        "web": own("-m", "mcp_optimizer_demo.web"),
        "excel": pypi("office", "excel-mcp-server", "stdio", "--allow-dir", str(world / "sheets")),
        "energy": pypi("duck", "mcp-server-duckdb", "--db-path", str(world / "energy.duckdb")),
        "taskmanager": npm("npm-more", "mcp-taskmanager", TASK_MANAGER_FILE_PATH=str(world / "tasks.json")),
        "everything": npm("npm-more", "mcp-server-everything"),
        "thinking": npm("npm-more", "mcp-server-sequential-thinking"),
        "booking": own("-m", "benchmarks.agent_trial.booking_server", str(world / "bookings.json")),
    }


def entry(command: Path | str, *arguments: str, **environment: str) -> dict[str, Any]:
    found: dict[str, Any] = {"command": str(command), "args": list(arguments)}
    return {**found, "env": environment} if environment else found


def remove(world: Path) -> None:
    for name in [*CHANGING, *GATEWAY]:
        path = world / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def make(world: Path, installed: Path, python: str) -> Path:
    """Make the world anew and return its server file."""
    world.mkdir(parents=True, exist_ok=True)
    remove(world)
    for folder in ("files", "arxiv", "sheets"):
        (world / folder).mkdir()
    content.write_files(world / "files")
    content.write_repository(world / "repo")
    content.write_trips(world / "t.db")
    content.write_bookings(world / "bookings.json")
    content.write_task_lists(world / "tasks.json")
    content.write_workbook(world / "sheets" / "budget.xlsx", installed / "office" / "bin" / "python")
    content.write_energy(world / "energy.duckdb", installed / "duck" / "bin" / "python")
    config = world / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers(world, installed, python)}, indent=1), encoding="utf-8")
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--from", type=Path, dest="other", metavar="OTHER", help="a world whose servers are installed")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has this project's packages")
    options = parser.parse_args()
    installed = (options.other or options.folder).resolve()
    programs.install(installed)
    print(make(options.folder.resolve(), installed, options.python))


if __name__ == "__main__":
    main()
