"""Reads the retrieval sets and tool corpora from the shared data folder.

All other steps take their tools and queries from here; nothing here changes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training import written
from training.features import ToolWords

TRAIN_SETS = ("bfcl_v4", "metatool", "seal_tools", "stabletoolbench", "traject_bench")
DEV_SETS = ("azure_mcp", "mcp_bench_accenture", "mcp_discovery_seed", "mcptoolbenchpp", "mcpagentbench")
EXTRA_DEV_SET = "toolret_subsets"
WRITTEN_DEV = "written_dev"
WRITTEN_FOLDS = tuple(f"written_{fold}" for fold in range(written.FOLDS))
CORPORA = ("corpus_docker", "corpus_github_mcp", "corpus_mcp_zero", "corpus_mcpm", "corpus_toucan")
FREE_LICENCES = frozenset({"MIT", "Apache-2.0"})


def data_folder() -> Path:
    """The shared data: `$TRAINING_DATA`, or `../shared/data` beside the checkout."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("TRAINING_DATA", default))


EVAL_LISTS = Path(__file__).resolve().parent / "data" / "eval"


def listed_requests() -> list[str]:
    """Every request in the lists that were written for measuring."""
    return [record["request"] for path in sorted(EVAL_LISTS.glob("*.jsonl")) for record in _records(path)]


@dataclass(frozen=True, slots=True)
class Query:
    """One request and the groups of tools (positions) that answer it; any one tool meets its group."""

    id: str
    text: str
    groups: tuple[tuple[int, ...], ...]
    split: str = ""

    @property
    def relevant(self) -> frozenset[int]:
        """Every tool that meets a group."""
        return frozenset(position for group in self.groups for position in group)


@dataclass(frozen=True, slots=True)
class ToolSet:
    """A catalog with its queries; a corpus has no queries."""

    name: str
    ids: tuple[str, ...]
    tools: tuple[ToolWords, ...]
    queries: tuple[Query, ...] = ()


def _records(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _schema(record: dict[str, Any]) -> dict[str, Any]:
    """The inputSchema; some corpora have only its properties."""
    schema = record.get("inputSchema") or {}
    bare = "properties" not in schema and any(isinstance(value, dict) for value in schema.values())
    return {"properties": schema} if bare else schema


def tool_words(record: dict[str, Any]) -> ToolWords:
    """One line of `tools.jsonl` as words."""
    return ToolWords.of(record.get("server") or "", record["name"], record.get("description") or "", _schema(record))


def _groups(record: dict[str, Any], position: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """The groups as given; `strict` marks sets whose `relevant` tools are alternatives to one gold tool."""
    single = [record["relevant"]] if "strict" in record else [[tool] for tool in record["relevant"]]
    named = record.get("groups") or single
    known = [tuple(position[tool] for tool in group if tool in position) for group in named]
    return tuple(group for group in known if group)


def load_set(folder: Path) -> ToolSet:
    """Read a folder with `tools.jsonl` and, unless it is a corpus, `queries.jsonl`."""
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
    """One of the train sets, or a fold of the written requests."""
    if name in WRITTEN_FOLDS:
        fold = WRITTEN_FOLDS.index(name)
        return _written_set(name, lambda server: not written.is_dev(server) and written.fold_of(server) == fold)
    return load_set(data_folder() / "retrieval" / "train" / name)


def load_dev(name: str) -> ToolSet:
    """One of the dev sets, which are used only to choose and to measure."""
    if name == WRITTEN_DEV:
        return _written_set(name, written.is_dev)
    return load_set(data_folder() / "retrieval" / "dev" / name)


def load_corpus(name: str) -> ToolSet:
    """One of the corpora: tools without queries."""
    return load_set(data_folder() / "retrieval" / "corpora" / name)


def written_folder() -> Path:
    """The folder with the requests written by hand."""
    return data_folder() / "retrieval" / "written"


def server_tools(server: str) -> dict[str, ToolWords]:
    """The tools of one real server by name; none if there is no file for it."""
    path = data_folder() / "mcp-tools" / f"{server}.json"
    if not path.exists():
        return {}
    shown = server.removeprefix("py__").split("__")[-1]
    listed = json.loads(path.read_text(encoding="utf-8"))["tools"]
    return {tool["name"]: tool_words({**tool, "server": shown}) for tool in listed}


def manifest() -> list[dict[str, Any]]:
    """The real servers and their licences."""
    listed: list[dict[str, Any]] = json.loads((data_folder() / "mcp-tools-manifest.json").read_text(encoding="utf-8"))
    return listed


def load_free_servers(leave_out: Callable[[str], bool]) -> ToolSet:
    """The real servers whose licence in the manifest is MIT or Apache-2.0, except those left out."""
    ids: list[str] = []
    tools: list[ToolWords] = []
    for entry in manifest():
        if entry["license"] in FREE_LICENCES and not leave_out(entry["server"]):
            for name, tool in server_tools(entry["server"]).items():
                ids.append(f"{entry['server']}::{name}")
                tools.append(tool)
    return ToolSet("mcp_tools_free", tuple(ids), tuple(tools))


def _written_set(name: str, belongs: Callable[[str], bool]) -> ToolSet:
    """All tools of the servers that belong to the set, and the requests for them. Equal tools are alternatives."""
    ids: list[str] = []
    tools: list[ToolWords] = []
    for entry in manifest():
        if belongs(entry["server"]):
            for tool, words in server_tools(entry["server"]).items():
                ids.append(f"{entry['server']}::{tool}")
                tools.append(words)
    position = {tool: at for at, tool in enumerate(ids)}
    twins: dict[str, list[int]] = {}
    for at, words in enumerate(tools):
        twins.setdefault(words.identity(), []).append(at)
    queries: list[Query] = []
    for one in written.read(written_folder()):
        if (own := position.get(f"{one.server}::{one.tool}")) is not None:
            group = (own, *(twin for twin in twins[tools[own].identity()] if twin != own))
            queries.extend(
                Query(f"{one.server}::{one.tool}::{kind}", text, (group,), kind)
                for kind, text in zip(written.KINDS, one.requests, strict=False)
            )
    return ToolSet(name, tuple(ids), tuple(tools), tuple(queries))
