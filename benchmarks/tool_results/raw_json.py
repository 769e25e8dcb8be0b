"""Reading a large message: ours, `Raw` of msgspec, and a complete parse.

    python -m benchmarks.tool_results.raw_json

`Raw` keeps parts of a message as text. msgspec is no dependency: without it in the environment, its column is missing.
The longest stop is that of another thread which wants the interpreter every half millisecond, as the event loop does
for all other callers.
"""

from __future__ import annotations

import importlib
import json
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pydantic_core

from mcp_optimizer.largejson.large_messages import read_large

_ROUNDS = 7
_MILLION = 1_000_000


def message(result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}).encode()


def rows(size: int) -> list[dict[str, Any]]:
    return [{"id": n, "title": f"Card {n}", "done": n % 3 == 0, "tags": ["a", "b"]} for n in range(size // 64)]


def shapes(size: int) -> dict[str, bytes]:
    text = 'A line of a log with "quotes" and a number 12345.\n' * (size // 54)
    return {
        "one long text": message({"content": [{"type": "text", "text": text}]}),
        "structured rows": message({"content": [], "structuredContent": {"rows": rows(size)}}),
        "rows as text and structure": message(
            {
                "content": [{"type": "text", "text": json.dumps(rows(size // 2))}],
                "structuredContent": {"rows": rows(size // 2)},
            }
        ),
    }


def ways() -> dict[str, Callable[[bytes], Any]]:
    found: dict[str, Callable[[bytes], Any]] = {
        "ours": lambda line: read_large(line, pydantic_core.from_json),
        "complete parse": pydantic_core.from_json,
    }
    try:
        msgspec = importlib.import_module("msgspec")
    except ImportError:
        return found
    raw: Any = msgspec.Raw
    result = msgspec.defstruct("Result", [("content", list[raw], []), ("structuredContent", raw, raw(b"null"))])
    decoder = msgspec.json.Decoder(msgspec.defstruct("Message", [("jsonrpc", str), ("id", int), ("result", result)]))
    return {**found, "msgspec.Raw": decoder.decode}


class Ticker:
    """Another thread, and the longest time for which it did not get the interpreter."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ends.set()
        self._thread.join()

    def _tick(self) -> None:
        before = time.perf_counter()
        while not self._ends.is_set():
            time.sleep(0.0005)
            now = time.perf_counter()
            self.longest, before = max(self.longest, now - before), now


def measured(read: Callable[[bytes], Any], line: bytes) -> tuple[float, float]:
    """Milliseconds that a read takes, and the longest stop of another thread: medians."""
    times, stops = [], []
    for _ in range(_ROUNDS):
        with Ticker() as ticker:
            began = time.perf_counter()
            read(line)
            times.append((time.perf_counter() - began) * 1_000)
        stops.append(ticker.longest * 1_000)
    return statistics.median(times), statistics.median(stops)


def main() -> None:
    print(f"{'':34}{'way':16}{'ms':>9}{'longest stop, ms':>18}")
    for size in (_MILLION, 10 * _MILLION, 50 * _MILLION):
        for shape, line in shapes(size).items():
            for way, read in ways().items():
                taken, stop = measured(read, line)
                print(f"{f'{len(line) / _MILLION:.0f} MB, {shape}':34}{way:16}{taken:9.1f}{stop:18.1f}")


if __name__ == "__main__":
    main()
