"""Embeds tools in a separate process, so the gateway does not load the model before the first search.

Run as a module, this file is that process: it answers each line of texts with their vectors and exits when its input
ends. It gets the texts of tools and nothing else of the gateway, not even secrets in the environment. Called by the
encoder, which embeds in the gateway if this fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from mcp_optimizer.search.encoders.onnx_model import EMPTY, LONGEST, WordPieces, load_session, run

_LONGEST_WAIT = 120.0
"""Maximum seconds for a batch, including the start of the process before the first. A batch takes one or two."""

_UNUSED = 5.0
"""Seconds without a batch after which the process is ended."""

_LAST = 2.0
"""Seconds that the process gets to exit after its input has ended."""

_NUMBER = 4
"""Bytes of a number in single precision."""

_NEEDED = frozenset({"PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT", "LD_LIBRARY_PATH", "VIRTUAL_ENV"})


class ToolProcess:
    """The process for one model: started for the first batch, and again for a batch after it has ended."""

    def __init__(self, folder: Path, unused: float = _UNUSED, longest_wait: float = _LONGEST_WAIT) -> None:
        self._folder = folder
        self._unused = unused
        self._longest_wait = longest_wait
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ending: threading.Timer | None = None

    @property
    def pid(self) -> int | None:
        """The id of the running process, if any."""
        return None if self._process is None else self._process.pid

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """The vectors in single precision, little-endian; raises OSError if the process cannot be used."""
        if not texts:
            return []
        with self._turn:
            if self._ending is not None:
                self._ending.cancel()
            if self._process is None:
                self._process = self._started()
            process = self._process
            # Killing a process that hangs ends the blocking read.
            patience = _later(self._longest_wait, process.kill)
            try:
                vectors = _asked(process, texts)
            except BaseException:
                self._end()
                raise
            finally:
                patience.cancel()
            self._ending = _later(self._unused, self.end)
            return vectors

    def end(self) -> None:
        """End the process; the next batch starts another."""
        with self._turn:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _started(self) -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise OSError("there is no interpreter to start")
        process = subprocess.Popen(
            # -P: do not import from the current folder, where any file may be called numpy.
            [sys.executable, "-P", "-m", __name__, str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name in _NEEDED},
            # An interrupt at the terminal is for the gateway; this process ends when the gateway closes its input.
            start_new_session=True,
        )
        weakref.finalize(self, _end, process)
        return process


def _later(seconds: float, act: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    return timer


def _asked(process: subprocess.Popen[bytes], texts: Sequence[str]) -> list[bytes]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(list(texts)).encode() + b"\n")
    process.stdin.flush()
    said = process.stdout.readline(32)
    size = int(said) if said.strip().isdigit() else 0
    width = size // len(texts)
    data = process.stdout.read(size)
    if not width or width % _NUMBER or len(data) != width * len(texts):
        raise OSError("the process that embeds tools ended or failed")
    return [data[at : at + width] for at in range(0, size, width)]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is not None:
        return
    for stream in filter(None, (process.stdin, process.stdout)):
        with contextlib.suppress(OSError):
            stream.close()
    try:
        process.wait(_LAST)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def answer(folder: Path, asked: IO[bytes], answers: IO[bytes]) -> None:
    """Run as the process: for each line of texts, write a line with the number of bytes, then the vectors."""
    pieces = WordPieces((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    session = load_session(folder / "model.onnx")
    for line in asked:
        rows = pieces.rows([text or EMPTY for text in json.loads(line)], LONGEST)
        vectors = b"".join(run(session, row).astype("<f4").tobytes() for row in rows)
        answers.write(b"%d\n" % len(vectors))
        answers.write(vectors)
        answers.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        answer(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
    # Exit without freeing the model.
    os._exit(0)
