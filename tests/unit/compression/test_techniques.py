"""COMPRESSION must be increased when the output of compression changes; otherwise users keep their stored forms."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.compression import compress as techniques
from mcp_optimizer.compression.compress import COMPRESSION, SHRINKING, Dialect, SchemaNotes, compress
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.token_counter import TokenCounter

SAMPLES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("samples.json").read_text(encoding="utf-8"))
TOOLS = [McpTool.model_validate(sample) for sample in SAMPLES]
COUNT = TokenCounter().count_tokens

DIGESTS = {5: "6a0286c733bed1a9", 6: "71224e82caf611ab", 7: "e172381020c1d83c"}
"""Digests of the compressed samples by version. A new version adds an entry; old ones stay, so that none is reused."""

NAMES = [technique.name for technique in SHRINKING] + [
    value for name, value in vars(techniques).items() if name.isupper() and name[0] != "_" and isinstance(value, str)
]


def digest() -> str:
    """The digest of everything that is stored: definitions and parameter groups, in every dialect."""
    every = [(tool, dialect, notes) for notes in SchemaNotes for dialect in Dialect for tool in TOOLS]
    made = [compress(tool, COUNT, dialect, notes=notes) for tool, dialect, notes in every]
    stored = [(one.wire_json, one.tokens, repr(one.groups)) for one in made]
    return hashlib.sha256(json.dumps(stored).encode()).hexdigest()[:16]


def test_a_change_of_what_compression_gives_increases_its_version() -> None:
    known = DIGESTS.get(COMPRESSION)
    assert known is not None, f"COMPRESSION was increased: add {COMPRESSION}: {digest()!r} to DIGESTS"
    assert digest() == known, (
        "Compression gives other results than this version did. Increase COMPRESSION in compression/compress.py, so "
        f"that stored forms are made again, and add {COMPRESSION + 1}: {digest()!r} to DIGESTS."
    )


def test_no_version_is_used_twice() -> None:
    assert len(set(DIGESTS.values())) == len(DIGESTS)
    assert max(DIGESTS) == COMPRESSION


@cache
def seen() -> frozenset[str]:
    """The techniques that change a sample."""
    return frozenset(
        step.technique
        for notes in SchemaNotes
        for dialect in Dialect
        for tool in TOOLS
        for step in compress(tool, COUNT, dialect, notes=notes, explained=True).steps
    )


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_every_technique_has_a_sample_that_it_changes(name: str) -> None:
    assert name in seen(), "add a sample to samples.json that shows what this technique does"
