"""Reads the retrieval sets and tool corpora from the shared data folder.

Every other step takes its tools and queries from here; nothing here changes them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.features import ToolWords

TRAIN_SETS = ("bfcl_v4", "metatool", "seal_tools", "stabletoolbench", "traject_bench")
DEV_SETS = ("azure_mcp", "mcp_bench_accenture", "mcp_discovery_seed", "mcptoolbenchpp", "mcpagentbench")
EXTRA_DEV_SET = "toolret_subsets"
CORPORA = ("corpus_docker", "corpus_github_mcp", "corpus_mcp_zero", "corpus_mcpm", "corpus_toucan")
FREE_LICENCES = frozenset({"MIT", "Apache-2.0"})


def data_folder() -> Path:
    """The shared data: `$TRAINING_DATA`, or `../shared/data` beside the checkout."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("TRAINING_DATA", default))


@dataclass(frozen=True, slots=True)
class Query:
    """One request with what answers it: each group is met by any one of its tools (positions)."""

    id: str
    text: str
    groups: tuple[tuple[int, ...], ...]
    split: str = ""

    @property
    def relevant(self) -> frozenset[int]:
        """Every tool that meets some group."""
        return frozenset(position for group in self.groups for position in group)


@dataclass(frozen=True, slots=True)
class ToolSet:
    """A catalog with its queries; a corpus has none."""

    name: str
    ids: tuple[str, ...]
    tools: tuple[ToolWords, ...]
    queries: tuple[Query, ...] = ()


def _records(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _schema(record: dict[str, Any]) -> dict[str, Any]:
    """The inputSchema; some corpora give the properties bare."""
    schema = record.get("inputSchema") or {}
    bare = "properties" not in schema and any(isinstance(value, dict) for value in schema.values())
    return {"properties": schema} if bare else schema


def tool_words(record: dict[str, Any]) -> ToolWords:
    """One line of `tools.jsonl` as words."""
    return ToolWords.of(record.get("server") or "", record["name"], record.get("description") or "", _schema(record))


def _groups(record: dict[str, Any], position: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """Groups as given; `strict` marks sets whose `relevant` are alternatives to one gold tool."""
    single = [record["relevant"]] if "strict" in record else [[tool] for tool in record["relevant"]]
    named = record.get("groups") or single
    known = [tuple(position[tool] for tool in group if tool in position) for group in named]
    return tuple(group for group in known if group)


def load_set(folder: Path) -> ToolSet:
    """A folder with `tools.jsonl` and, unless it is a corpus, `queries.jsonl`."""
    records = _records(folder / "tools.jsonl")
    ids = tuple(record["id"] for record in records)
    position = {tool: index for index, tool in enumerate(ids)}
    queries: tuple[Query, ...] = ()
    if (folder / "queries.jsonl").exists():
        queries = tuple(
            Query(str(record["id"]), record["query"], _groups(record, position), record.get("split", ""))
            for record in _records(folder / "queries.jsonl")
        )
    return ToolSet(folder.name, ids, tuple(map(tool_words, records)), queries)


def load_train(name: str) -> ToolSet:
    """One of the sets that may train what ships."""
    return load_set(data_folder() / "retrieval" / "train" / name)


def load_dev(name: str) -> ToolSet:
    """One of the sets that only choose and measure."""
    return load_set(data_folder() / "retrieval" / "dev" / name)


def load_corpus(name: str) -> ToolSet:
    """Tools without queries."""
    return load_set(data_folder() / "retrieval" / "corpora" / name)


def load_free_servers(leave_out: frozenset[str]) -> ToolSet:
    """The real servers whose manifest licence is MIT or Apache-2.0, but for those named."""
    folder = data_folder()
    manifest = json.loads((folder / "mcp-tools-manifest.json").read_text(encoding="utf-8"))
    ids: list[str] = []
    tools: list[ToolWords] = []
    for entry in manifest:
        path = folder / "mcp-tools" / f"{entry['server']}.json"
        if entry["license"] not in FREE_LICENCES or entry["server"] in leave_out or not path.exists():
            continue
        for tool in json.loads(path.read_text(encoding="utf-8"))["tools"]:
            ids.append(f"{entry['server']}::{tool['name']}")
            tools.append(tool_words({**tool, "server": entry["server"].removeprefix("py__").split("__")[-1]}))
    return ToolSet("mcp_tools_free", tuple(ids), tuple(tools))
