"""Tools are embedded in a process of its own until somebody searches, and by the gateway if that fails."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mcp_optimizer.search.encoders import tool_process
from mcp_optimizer.search.encoders.choose import MODEL, load_encoder
from mcp_optimizer.search.encoders.onnx import DeferredEncoder, OnnxEncoder
from mcp_optimizer.search.encoders.tool_process import ToolProcess
from mcp_optimizer.search.vectors import numbers
from tests.waiting import until

pytestmark = pytest.mark.process

LEAVING = """
import os, sys
from pathlib import Path
from mcp_optimizer.search.encoders.tool_process import ToolProcess
process = ToolProcess(Path(sys.argv[1]))
process.embed(["a"])
print(process.pid, flush=True)
os._exit(0)
"""
TEXTS = ["create an issue", "", "\ud800 half a pair", "naïve café 北京", "x" * 50_000]


@pytest.fixture
def process() -> Iterator[ToolProcess]:
    made = ToolProcess(MODEL)
    yield made
    made.end()


@pytest.fixture
def onnx() -> OnnxEncoder:
    return OnnxEncoder(MODEL, "bundled", is_known=True)


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # Or nobody has asked for its exit code.
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_it_makes_the_same_vectors_as_the_encoder_under_the_same_name(process: ToolProcess, onnx: OnnxEncoder) -> None:
    encoder = DeferredEncoder(onnx, MODEL, process)
    made = [numbers(vector) for vector in encoder.embed_tools(TEXTS)]
    assert not encoder.is_loaded
    np.testing.assert_array_equal(np.stack(made), onnx.embed_tools(TEXTS))
    assert (encoder.name, encoder.fusion) == (onnx.name, onnx.fusion)


def test_one_process_embeds_batch_after_batch_and_nothing_makes_nothing(process: ToolProcess) -> None:
    first = process.embed(["a"])
    pid = process.pid
    assert process.embed([]) == []
    assert process.embed(["a", "b"])[0] == first[0]
    assert process.pid == pid


async def test_it_ends_when_nobody_needs_it_and_the_next_batch_starts_another() -> None:
    process = ToolProcess(MODEL, unused=0.05)
    process.embed(["a"])
    await until(lambda: process.pid is None, "the process to end")
    assert len(process.embed(["a"])) == 1
    process.end()


def test_once_somebody_has_searched_the_gateway_embeds_itself(process: ToolProcess, onnx: OnnxEncoder) -> None:
    encoder = DeferredEncoder(onnx, MODEL, process)
    encoder.embed_queries(["create an issue"])
    assert len(list(encoder.embed_tools(["a"]))) == 1
    assert process.pid is None


def test_a_process_that_is_killed_costs_no_vectors(process: ToolProcess, onnx: OnnxEncoder) -> None:
    encoder = DeferredEncoder(onnx, MODEL, process)
    encoder.embed_tools(["a"])
    os.kill(process.pid or 0, signal.SIGKILL)
    assert [len(numbers(vector)) for vector in encoder.embed_tools(["a", "b"])] == [384, 384]
    assert (process.pid, encoder.is_loaded) == (None, True)


def test_a_process_that_takes_too_long_is_ended_and_costs_no_vectors(onnx: OnnxEncoder) -> None:
    process = ToolProcess(MODEL, longest_wait=0.01)
    encoder = DeferredEncoder(onnx, MODEL, process)
    assert len(list(encoder.embed_tools(["a"]))) == 1
    assert (process.pid, encoder.is_loaded) == (None, True)


@pytest.mark.parametrize("executable", ["", "/no/such/interpreter"])
def test_where_no_process_can_be_started_the_gateway_embeds_itself(
    executable: str, onnx: OnnxEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    encoder = DeferredEncoder(onnx, MODEL)
    assert len(list(encoder.embed_tools(["a"]))) == 1
    assert encoder.is_loaded


async def test_it_ends_with_whoever_started_it() -> None:
    left = await asyncio.create_subprocess_exec(sys.executable, "-c", LEAVING, MODEL, stdout=asyncio.subprocess.PIPE)
    said, _ = await left.communicate()
    await until(lambda: has_ended(int(said)), "the process to end")


def test_it_gets_no_secret_and_reads_no_module_of_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN_OF_SOMEBODY", "s3cret")
    process = ToolProcess(MODEL)
    assert len(process.embed(["a"])) == 1
    if sys.platform.startswith("linux"):
        assert b"s3cret" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    process.end()


def test_only_a_gateway_that_serves_gets_it() -> None:
    assert isinstance(load_encoder("bundled"), OnnxEncoder)
    assert isinstance(load_encoder("bundled", saves_memory=True), DeferredEncoder)


def test_the_process_answers_each_line_and_ends_with_its_input(tmp_path: Path) -> None:
    asked, answers = tmp_path / "asked", tmp_path / "answers"
    asked.write_bytes(b'["a"]\n[]\n')
    with asked.open("rb") as reading, answers.open("wb") as writing:
        tool_process.answer(MODEL, reading, writing)
    size, vector = answers.read_bytes()[:-2].split(b"\n", 1)
    assert (int(size), answers.read_bytes()[-2:]) == (len(vector), b"0\n")
