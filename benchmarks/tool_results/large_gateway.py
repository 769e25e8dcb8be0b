"""The `mcp-optimizer` command, with a task that writes the longest stop of the event loop to a file.

Started by `large`: python large_gateway.py FILE serve ...

FILE holds the longest stop in milliseconds, as a double; whoever reads it may reset it to 0. With `LARGE_STACKS=1`, the
positions of all threads are printed to stderr whenever the loop has not run for a while.
"""

from __future__ import annotations

import asyncio
import gc
import mmap
import os
import struct
import sys
import threading
import time
import traceback
from pathlib import Path

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.cli import main

_BEAT = 0.002
_SETTLED = 2.5
_LATE = 25


class Beat:
    """When the event loop last ran."""

    def __init__(self) -> None:
        self.last = 0.0

    async def watch(self, path: Path) -> None:
        # The gateway itself does this after half a minute.
        await asyncio.sleep(_SETTLED)
        gc.collect()
        gc.freeze()
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 8) as held:
            while True:
                self.last = time.perf_counter()
                await asyncio.sleep(_BEAT)
                stop = (time.perf_counter() - self.last - _BEAT) * 1_000
                (longest,) = struct.unpack("d", held[:8])
                if stop > longest:
                    held[:8] = struct.pack("d", stop)

    def tell(self) -> None:
        """Print where the threads are when the loop has not run for a while."""
        while True:
            time.sleep(_BEAT)
            if self.last and (late := (time.perf_counter() - self.last) * 1_000) > _LATE:
                print(f"no beat for {late:.0f} ms", file=sys.stderr)
                for frame in sys._current_frames().values():
                    calls = traceback.extract_stack(frame)[-5:]
                    print("   ", " > ".join(f"{call.name}:{call.lineno}" for call in calls), file=sys.stderr)


def run() -> None:
    path = Path(sys.argv.pop(1))
    beat = Beat()
    if os.environ.get("LARGE_STACKS"):
        threading.Thread(target=beat.tell, daemon=True).start()
    start = Optimizer.start
    tasks = set()

    def watched(optimizer: Optimizer) -> None:
        start(optimizer)
        tasks.add(asyncio.get_running_loop().create_task(beat.watch(path)))

    Optimizer.start = watched  # type: ignore[method-assign,assignment]
    main()


if __name__ == "__main__":
    run()
