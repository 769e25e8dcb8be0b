"""A hostile MCP server on stdio: carries out the input that its mode file names, and is honest otherwise.

python -m tests.hostile.stdio_server MODE_FILE [--input NAME] [--modern] [--scale N] [--seed N] [--nice]
A server that was hostile exits when the file changes to `good`, so that its next start is honest. Standard library
only, and no event loop, because it must start in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.hostile import honest
from tests.hostile.deeds import (
    BEGIN,
    HELLO,
    STREAM,
    Asked,
    CloseOutput,
    Deed,
    Exit,
    Pause,
    Say,
    Stderr,
    StopReading,
    Wire,
)
from tests.hostile.inputs import INPUTS
from tests.hostile.mode import GOOD, MUTATED, FileMode
from tests.hostile.mutate import ServerMutations

_AT_ONCE = 64 * 1024


class StdioServer:
    """Reads requests and answers each in its own thread."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._mode = FileMode(options.mode_file, options.input)
        self._is_modern: bool = options.modern
        self._scale: int = options.scale
        self._writing = threading.Lock()
        self._is_deaf = threading.Event()
        self._mutations = ServerMutations(options.seed, os.getpid() if options.seed is None else self._mode_life())

    def _mode_life(self) -> int:
        """A number for this start of the server. Each start has its own changes, the same ones for the same seed."""
        self._mode.done("life")
        return os.fstat(self._mode.descriptor).st_size

    def run(self) -> None:
        threading.Thread(target=self._end_when_good, daemon=True).start()
        self._at(BEGIN, Asked(BEGIN, None, "", self._scale))
        for line in sys.stdin.buffer:
            if self._is_deaf.is_set():
                break
            try:
                message = json.loads(line)
            except ValueError:
                continue
            threading.Thread(target=self._answer, args=(message,), daemon=True).start()
        while self._is_deaf.is_set():
            time.sleep(1)

    def _end_when_good(self) -> None:
        was_hostile = False
        while True:
            is_hostile = self._mode.current() != GOOD
            if was_hostile and not is_hostile:
                os._exit(0)
            was_hostile = is_hostile
            time.sleep(0.02)

    def _answer(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if "id" not in message or method is None:
            return
        is_hello = method == ("server/discover" if self._is_modern else "initialize")
        text = honest.answer(message, is_modern=self._is_modern)
        asked = Asked(str(method), message["id"], text, self._scale)
        if not self._at(HELLO if is_hello else asked.method, asked) and text:
            self._perform([Say(text)])
        if method == "tools/list":
            self._at(STREAM, Asked(STREAM, None, "", self._scale))

    def _at(self, occasion: str, asked: Asked) -> bool:
        """Do what the current input does on this occasion. Returns whether it did anything."""
        name = self._mode.current()
        if name == MUTATED:
            deeds, kinds = self._mutations.at(occasion, asked)
            for kind in kinds:
                self._mode.done(kind)
            self._perform(deeds)
            return bool(deeds)
        if name == GOOD or INPUTS[name].at != occasion:
            return False
        self._mode.done(name)
        self._perform(INPUTS[name].deeds(asked))
        return True

    def _perform(self, deeds: Iterable[Deed]) -> None:
        for deed in deeds:
            if isinstance(deed, Say):
                self._write(_bytes(deed.text) + b"\n", deed.times)
            elif isinstance(deed, Wire):
                self._write(deed.data, deed.times)
            elif isinstance(deed, Stderr):
                for _ in range(deed.times):
                    os.write(2, deed.data)
            elif isinstance(deed, Pause):
                time.sleep(deed.seconds)
            elif isinstance(deed, Exit):
                os._exit(deed.code)
            elif isinstance(deed, CloseOutput):
                os.close(1)
            elif isinstance(deed, StopReading):
                self._is_deaf.set()

    def _write(self, data: bytes, times: int) -> None:
        together = max(1, min(times, _AT_ONCE // max(1, len(data))))
        with self._writing:
            while times > 0:
                rest = memoryview(data * min(together, times))
                while rest:
                    try:
                        rest = rest[os.write(1, rest) :]
                    except OSError:
                        return
                times -= together


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode_file", type=Path)
    parser.add_argument("--input", default="")
    parser.add_argument("--modern", action="store_true")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--nice", action="store_true", help="leave the cores to whoever is measured")
    options = parser.parse_args()
    if options.nice:
        os.nice(19)
    StdioServer(options).run()


if __name__ == "__main__":
    main()
