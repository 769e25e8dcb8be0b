"""The requests written by hand for this project: where they are, which servers are held out, which tools answer.

`pairs.py` makes training pairs from them, `sets.py` catalogs with queries. A tenth of the servers, chosen by a hash
of the name, is `written_dev`: nothing of theirs is used for training. The others are divided into three folds by
another hash, so that the fusion can learn from encoders that never saw the fold in question.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDS = 3
DEV_SHARE = 10
KINDS = "ABCD"
MORE_KINDS = ("indirect", "contrast", "contrast_more", "wishes", "wishes_more")
DATA = Path(__file__).parent / "data"

# Tools of the same kind answer each other's general requests.
GENERAL_KINDS: dict[str, frozenset[str]] = {
    "web_search": frozenset(
        {
            "web_search_exa", "brave_web_search", "tavily_search", "searxng_web_search", "perplexity_ask",
            "kagi_search_fetch", "google_search", "ollama_web_search", "web_search",
        }
    ),
    "web_page": frozenset({"scrape_webpage", "crawl_webpage", "tavily_extract", "scrape_as_markdown"}),
    "code": frozenset({"execute_code", "execute_cell"}),
    "shell": frozenset({"run_command", "execute_command"}),
    "sql": frozenset({"query", "execute_query"}),
    "file_reading": frozenset({"read_file"}),
    "file_finding": frozenset({"nc_webdav_search_files", "find_files"}),
    "file_writing": frozenset({"nc_webdav_write_file"}),
    "remembering": frozenset({"add_memory", "write_note"}),
    "recalling": frozenset({"search_memories"}),
    "browser": frozenset({"browser_navigate"}),
    "maths": frozenset({"sympy_solve"}),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    """One tool and the requests written for it; general-purpose tools of the same `kind` are its alternatives."""

    server: str
    tool: str
    requests: tuple[str, ...]
    kind: str = ""


def _number(label: str, server: str) -> int:
    return int(hashlib.sha256(f"{label}:{server}".encode()).hexdigest(), 16)


def is_dev(server: str) -> bool:
    """Whether a server is held out for measuring."""
    return _number("written_dev", server) % DEV_SHARE == 0


def fold_of(server: str) -> int:
    """The fold of a server that may be used for training."""
    return _number("fold", server) % FOLDS


def _general_kind(tool: str) -> str:
    return next(kind for kind, names in GENERAL_KINDS.items() if tool in names)


def read(folder: Path) -> Iterator[Written]:
    """The tools in `requests.jsonl`, without aliases and placeholders, which have no requests."""
    for record in _records(folder / "requests.jsonl"):
        if record["requests"]:
            yield Written(record["server"], record["tool"], tuple(record["requests"]))


def read_more(kind: str) -> Iterator[Written]:
    """Further requests: `indirect` and sloppy ones, or `contrast`: only one of two near relatives answers them."""
    for record in _records(DATA / f"{kind}.jsonl"):
        yield Written(record["server"], record["tool"], tuple(record["requests"]))


def read_general(folder: Path) -> Iterator[Written]:
    """The tools in `general.jsonl`."""
    for record in _records(folder / "general.jsonl"):
        kind = _general_kind(record["tool"])
        yield Written(record["server"], record["tool"], tuple(record["requests"]), kind)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
