"""For real tools and generated arguments: the original accepts whatever a compressed schema accepts."""

from __future__ import annotations

import time

import pytest

from mcp_optimizer.compression.compress import Dialect, compress
from mcp_optimizer.token_counter import TokenCounter
from tests.conftest import DATA

pytest.importorskip("hypothesis_jsonschema", reason="generates arguments from a schema; a tool of the developers")

from benchmarks.definitions import soundness

DUMPS = DATA / "mcp-tools"
EVERY = 71
SECONDS = 15.0
LARGEST = 6_000


@pytest.mark.requirement("TS-2", "CX-2")
@pytest.mark.slow
@pytest.mark.skipif(not DUMPS.is_dir(), reason="the dumps of real tools are not beside the repository")
def test_what_compressed_real_tools_admit_the_originals_admit() -> None:
    counter = TokenCounter()
    checked = skipped = 0
    started = time.perf_counter()
    for number, (server, tool) in enumerate(soundness.real_tools(DUMPS)):
        # The generator needs seconds for each large schema; `benchmarks.definitions.soundness` covers all of them.
        if number % EVERY or len(tool.model_dump_json()) > LARGEST:
            continue
        if time.perf_counter() - started > SECONDS:
            break
        dialect = Dialect.REFERENCES if checked % 3 == 0 else Dialect.PLAIN
        try:
            found = soundness.violations(tool, compress(tool, counter.count_tokens, dialect), 2, both_ways=False)
        except soundness.NotGenerable:
            skipped += 1
            continue
        assert found == [], server
        checked += 1
    assert checked > 20
    assert skipped < checked / 5
