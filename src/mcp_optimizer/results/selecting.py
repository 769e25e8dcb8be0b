"""Applies an expression to a large result in a process of its own, which ends with it.

To parse fifty megabytes takes half a second in which nothing else could run here, and several times as much memory.
Called by the pipeline with the JSON in pieces; what comes back is the text of what was selected. Run as a module, this
is the process itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.json_text import parsed
from mcp_optimizer.raw_json import LargeText
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.reading import PARSED, Text, compact

MOST_SELECTED = 64_000_000
"""Bytes of JSON in which an expression can select."""

_MOST_MEMORY = 4 << 30
_MOST_SECONDS = 60.0
_CHUNK = 256 * 1024
_REFUSED = 3
"""The exit code that says that the output is the reason."""

NEEDS_JSON = "select needs JSON, and this result is plain text. Use search, or read it with offset."


class Selecting:
    """One at a time: each may take much memory for a moment."""

    def __init__(self) -> None:
        self._one = asyncio.Semaphore(1)

    async def select(self, texts: AsyncIterator[bytes], expression: str) -> Text:
        """What the expression selects, as JSON text; `texts` are values of JSON, with a comma between two of them."""
        async with self._one:
            try:
                async with asyncio.timeout(_MOST_SECONDS):
                    code, said = await _answered(texts, expression)
            except TimeoutError:
                raise InvalidRequest(f"select took longer than {_MOST_SECONDS:g} s. Use search instead.") from None
        if code == _REFUSED:
            raise InvalidRequest(said.decode("utf-8", "replace"))
        if code != 0:
            raise InvalidRequest("select needs too much memory for this result. Use search, or read it with offset.")
        if len(said) <= PARSED:
            return str(json.loads(said))
        return await asyncio.to_thread(LargeText, memoryview(said))


async def _answered(texts: AsyncIterator[bytes], expression: str) -> tuple[int, bytearray]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name in _NEEDED},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # It may refuse before it has read everything.
        with suppress(OSError):
            # Not as an argument: those can be seen by everybody.
            process.stdin.write(json.dumps(expression).encode() + b"\n")
            async for text in texts:
                process.stdin.write(text)
                await process.stdin.drain()
        process.stdin.close()
        said = bytearray()
        while chunk := await process.stdout.read(_CHUNK):
            said += chunk
        return await process.wait(), said
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


_NEEDED = frozenset({"PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT", "LD_LIBRARY_PATH", "VIRTUAL_ENV"})


def main() -> int:
    """The process: reads the values, writes what is selected of them as a JSON string."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    expression = json.loads(sys.stdin.buffer.readline())
    data = b"[" + sys.stdin.buffer.read() + b"]"
    try:
        try:
            values = parsed(data)
        except ValueError:
            raise InvalidRequest(NEEDS_JSON) from None
        del data
        text = compact(Projection(expression).of(values[0] if len(values) == 1 else values))
    except InvalidRequest as error:
        sys.stdout.buffer.write(str(error).encode("utf-8", "replace"))
        return _REFUSED
    json.dump(text, sys.stdout)
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    # What was parsed is not worth freeing.
    code = main()
    sys.stdout.flush()
    os._exit(code)
