"""Results of real servers on real files and repositories, for `estimates` and `typical`.

Their option `--servers` names a folder in which the servers are installed:

folder/node_modules/.bin/mcp-server-{filesystem,everything}    npm install @modelcontextprotocol/server-...
folder/pyenv/bin/mcp-server-{git,time}                         pip install mcp-server-git mcp-server-time
"""

from __future__ import annotations

import json
import random
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paths import DUMPS, ROOT
from mcp_optimizer import Optimizer
from mcp_optimizer_demo import demo_server_commands

SITE_PACKAGES = Path(sysconfig.get_paths()["purelib"])
OTHER_LANGUAGES = Path("/usr/share/vim")

KINDS_OF_FILES = {
    "python": ((".py",), 110),
    "javascript": ((".js", ".ts", ".mjs", ".cjs"), 90),
    "prose": ((".md", ".rst", ".txt"), 110),
    "data": ((".json", ".toml", ".yaml", ".yml", ".csv", ".xml"), 90),
    "markup": ((".html", ".css", ".svg"), 20),
    "languages": ((".utf-8",), 60),
}
LARGEST_FILE = 400_000


@dataclass(frozen=True)
class RealResult:
    """The text of one result, and where it came from."""

    source: str
    text: str


@asynccontextmanager
async def real_servers(folder: Path, **settings: Any) -> AsyncIterator[Optimizer]:
    """A gateway to the real servers installed in a folder and to two demo servers."""
    bins, python = folder / "node_modules" / ".bin", folder / "pyenv" / "bin"
    places = [str(place) for place in roots(folder)]
    entries: dict[str, Any] = {
        "filesystem": {"command": str(bins / "mcp-server-filesystem"), "args": places},
        "git": {"command": str(python / "mcp-server-git")},
        "everything": {"command": str(bins / "mcp-server-everything")},
        "time": {"command": str(python / "mcp-server-time")},
    }
    for name in ("sql", "kanban"):
        command, *arguments = demo_server_commands()[name]
        entries[name] = {"command": command, "args": arguments}
    with tempfile.TemporaryDirectory() as place:
        config = Path(place) / "mcp.json"
        config.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
        options = {"database": "none", "encoder": "none", "history": False, **settings}
        async with Optimizer.from_config(config, **options) as optimizer:
            yield optimizer


def roots(folder: Path) -> list[Path]:
    places = [SITE_PACKAGES, folder / "node_modules", OTHER_LANGUAGES, ROOT, ROOT.parent / "shared"]
    return [place.resolve() for place in places if place.exists()]


def some_files(folder: Path, seed: int) -> list[tuple[str, Path]]:
    """Files of many kinds and sizes; the same ones for the same seed."""
    chooser = random.Random(seed)
    everything = sorted(path for root in roots(folder) for path in _text_files(root))
    chosen = []
    for kind, (endings, most) in KINDS_OF_FILES.items():
        fitting = [path for path in everything if path.name.endswith(endings)]
        chosen += [(kind, path) for path in chooser.sample(fitting, min(most, len(fitting)))]
    return chosen


def _text_files(root: Path) -> Iterable[Path]:
    skipped = {".git", ".venv", "__pycache__", "data"}
    for path in root.rglob("*"):
        if (
            skipped.isdisjoint(path.relative_to(root).parts)
            and path.is_file()
            and 0 < path.stat().st_size < LARGEST_FILE
        ):
            yield path


def some_calls(folder: Path, seed: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Calls as models make them: the kind, the tool, the arguments."""
    calls: list[tuple[str, str, dict[str, Any]]] = []
    calls += [(f"file: {kind}", "read_text_file", {"path": str(path)}) for kind, path in some_files(folder, seed)]
    chooser = random.Random(seed)
    folders = sorted({path.parent for root in roots(folder)[:2] for path in root.glob("*/*/*.*")})
    for path in chooser.sample(folders, min(60, len(folders))):
        calls.append(("folder", "list_directory_with_sizes", {"path": str(path)}))
        calls.append(("folder tree", "directory_tree", {"path": str(path)}))
    for pattern in ("**/*.md", "**/*test*.py", "**/LICENSE*"):
        calls += [
            ("file search", "search_files", {"path": str(root), "pattern": pattern}) for root in roots(folder)[:2]
        ]
    repository = str(ROOT)
    for count in (1, 3, 10, 30, 100):
        calls.append(("git log", "git_log", {"repo_path": repository, "max_count": count}))
    for back in range(40):
        calls.append(("git show", "git_show", {"repo_path": repository, "revision": f"HEAD~{back}"}))
    for table in ("customers", "orders", "products", "order_items", "reviews"):
        for rows in (5, 50, 500):
            query = f"SELECT * FROM {table}"  # noqa: S608 - one of ours
            calls.append(("query", "secureDatabaseQuery", {"queryDescription": query, "maxRows": rows}))
    calls.append(("schema", "listTables", {}))
    calls.append(("time", "get_current_time", {"timezone": "Europe/Lisbon"}))
    calls += [("everything", name, {}) for name in ("get-env",)]
    return calls


async def real_results(folder: Path, seed: int = 7) -> list[RealResult]:
    """Results of real servers, and real tool definitions, as texts."""
    found: list[RealResult] = []
    unlimited = {"max_tokens": 0, "max_rows": 0, "result_encoding": "original"}
    async with real_servers(folder, **unlimited) as optimizer:
        for source, tool, arguments in some_calls(folder, seed):
            try:
                result = await optimizer.call(tool, arguments)
            except Exception as error:  # noqa: BLE001 - a call that fails means one result fewer
                print(f"{tool}: {error}", file=sys.stderr)
                continue
            if not result.get("isError"):
                found += [RealResult(source, block["text"]) for block in result["content"] if block.get("text")]
    for path in sorted(DUMPS.glob("*.json"))[::4]:
        found.append(RealResult("tool definitions", path.read_text(encoding="utf-8")))
    return found
