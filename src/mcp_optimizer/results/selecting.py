"""Applies an expression without blocking other work: small jobs in a thread, everything else in a process.

Parsing fifty megabytes or taking a million steps would block all other work and take several times the memory. So a
small result is tried in a thread with part of the budget; if that does not suffice, a separate process starts over and
exits after the job. Called by `pipeline` and `reader`; run as a module, this file is that process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.largejson.compact_json import parsed
from mcp_optimizer.largejson.raw import LargeText, LargeValue, RawJson
from mcp_optimizer.limits import Limits
from mcp_optimizer.results.notices import Selection
from mcp_optimizer.results.projection import Projection, TooMuch
from mcp_optimizer.results.result_texts import NO_JSON, PARSED, Reading, compact, data_value
from mcp_optimizer.runtime.patterns import regex

MOST_SELECTED = 64_000_000
"""Maximum bytes of JSON for `select`."""

AT_ONCE = 100_000
"""Maximum steps in a thread: about fifty milliseconds, during which other work is slower."""

_THREADS = 2
_MEMORY = 1 << 30
_MEMORY_PER_BYTE = 48
_MOST_SECONDS = 60.0
_CHUNK = 256 * 1024
_REFUSED = 3
"""The exit code of a refusal; the output is then the reason."""

NEEDS_JSON = (
    "select needs data (JSON, a table, CSV or a Python literal), and this result is plain text. Use search, or read it "
    "with offset."
)


class Selecting:
    """Limits the jobs: few in threads, which other work needs too; one at a time in a process, which may take much
    memory.
    """

    def __init__(self) -> None:
        self._few = asyncio.Semaphore(_THREADS)
        self._one = asyncio.Semaphore(1)

    async def select(
        self,
        projection: Projection,
        size: int,
        texts: Callable[[], AsyncIterator[bytes]],
        value: Callable[[], Any] | None = None,
    ) -> Selection:
        """What the expression selects.

        `texts` are JSON values separated by commas, `size` bytes together; `value` returns their parsed form, if they
        are small enough to be parsed in this process.
        """
        if value is not None:
            with suppress(TooMuch):
                async with self._few:
                    return await asyncio.to_thread(_tried, projection, size, value)
        try:
            async with asyncio.timeout(_MOST_SECONDS), self._one:
                code, remarks, said = await _answered(texts(), projection, size)
        except TimeoutError:
            raise InvalidRequest(f"select took longer than {_MOST_SECONDS:g} s. Select less.") from None
        if code == _REFUSED:
            raise InvalidRequest((remarks + said).decode("utf-8", "replace"))
        if code != 0:
            raise InvalidRequest("select needs too much memory for this result. Use search, or read it with offset.")
        is_small = len(said) <= PARSED
        text = json.loads(said) if is_small else await asyncio.to_thread(LargeText, memoryview(said))
        return Selection.of(text, remarks)

    async def of_result(self, projection: Projection, reading: Reading) -> Selection:
        """What the expression selects from a result that has just arrived.

        If the result is an object with a single value, the expression applies to that value, unless it names the key.
        """
        inner = unwrapped(reading)
        if inner is None:
            return await self._of(projection, reading)
        if next(iter(reading.structured)) in projection.expression:
            with suppress(InvalidRequest):
                selection = await self._of(projection, reading)
                if not selection.is_guess:
                    return selection
        return await self._of(projection, inner)

    async def of_many(self, projection: Projection, values: list[Any]) -> Selection:
        """What the expression selects from each of many results, or, if that is nothing, from the list of them."""
        text = compact(values).encode("utf-8", "surrogatepass")

        async def texts() -> AsyncIterator[bytes]:
            yield text

        refused: InvalidRequest | None = None
        for one in (projection.of_each, projection):
            try:
                found = await self.select(one, len(text), texts, lambda: values)
            except InvalidRequest as error:
                refused = refused or error
                continue
            if not found.is_guess and not _is_nothing(found):
                return found
        if refused is not None:
            raise refused
        # Its keys say best what an element has.
        return await self.select(projection, len(text), texts, lambda: next(filter(None, values), None))

    async def _of(self, projection: Projection, reading: Reading) -> Selection:
        large = await asyncio.to_thread(_large_json, reading)
        if large is None:
            return await self.select(projection, reading.size, lambda: _small(reading), lambda: _value(reading))
        size = len(large.json)
        if size > MOST_SELECTED:
            raise InvalidRequest(f"the result is too large for select ({size:,} bytes)")
        return await self.select(projection, size, lambda: _fed(large))


_ONLY_NULLS = regex(r"\[(null,?)*\]")


def _is_nothing(found: Selection) -> bool:
    return isinstance(found.text, str) and _ONLY_NULLS.fullmatch(found.text) is not None


def unwrapped(reading: Reading) -> Reading | None:
    """The only value in a structured content: JSON that is also the text, or FastMCP's `result`; otherwise None."""
    structured = reading.structured
    if not isinstance(structured, dict) or len(structured) != 1:
        return None
    [(key, value)] = structured.items()
    if isinstance(value, str):
        is_text = [slot.text for slot in reading.slots] == [value] and reading.value is not NO_JSON
        return Reading({"content": [{"type": "text", "text": value}]}) if is_text else None
    return Reading({"structuredContent": value}) if key == "result" and not isinstance(value, RawJson) else None


def selectable(reading: Reading) -> Reading:
    """The part of a result that an expression is applied to: its structured content, unless the text repeats it."""
    if (inner := unwrapped(reading)) is not None and inner.structured is NO_JSON:
        return inner
    structured, texts = reading.structured, [slot.text for slot in reading.slots]
    is_same = len(texts) == 1 and (
        isinstance(texts[0], LargeText) if isinstance(structured, LargeValue) else reading.value == structured
    )
    return reading if structured is NO_JSON or is_same else Reading({"structuredContent": structured})


def _large_json(reading: Reading) -> RawJson | None:
    """The result as unparsed JSON, if it is too large to be parsed in this process."""
    if reading.structured is not NO_JSON:
        return reading.structured if isinstance(reading.structured, LargeValue) else None
    [text] = [slot.text for slot in reading.slots] if len(reading.slots) == 1 else [""]
    return text if isinstance(text, LargeText) else None


async def _fed(large: RawJson) -> AsyncIterator[bytes]:
    utf8 = memoryview(await asyncio.to_thread(lambda: large.utf8)) if isinstance(large, LargeText) else large.json
    for at in range(0, len(utf8), _CHUNK):
        yield bytes(utf8[at : at + _CHUNK])


async def _small(reading: Reading) -> AsyncIterator[bytes]:
    text = reading.slots[0].text if reading.structured is NO_JSON else reading.structured_text
    yield str(text).encode("utf-8", "surrogatepass")


def _value(reading: Reading) -> Any:
    value = reading.value if reading.structured is NO_JSON else reading.structured
    if value is NO_JSON and len(reading.slots) == 1:
        value = data_value(str(reading.slots[0].text))
    if value is NO_JSON or isinstance(value, RawJson):
        raise InvalidRequest("the result is neither JSON nor a table")
    return value


def _tried(projection: Projection, size: int, value: Callable[[], Any]) -> Selection:
    steps, output = min(AT_ONCE, projection.steps(size)), min(PARSED, projection.limits.expression_output)
    return projection.selection(value(), steps, output)


async def _answered(texts: AsyncIterator[bytes], projection: Projection, size: int) -> tuple[int, bytes, bytearray]:
    """Run the process; return its exit code, the first line and the rest of its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name in _NEEDED},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # The process may refuse before it has read everything.
        with suppress(OSError):
            # Not as an argument, because other users of the machine can see arguments.
            asked = [projection.expression, size, projection.limits.model_dump()]
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            async for text in texts:
                process.stdin.write(text)
                await process.stdin.drain()
        process.stdin.close()
        remarks = await process.stdout.readline()
        said = bytearray()
        while chunk := await process.stdout.read(_CHUNK):
            said += chunk
        return await process.wait(), remarks, said
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


_NEEDED = frozenset({"PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT", "LD_LIBRARY_PATH", "VIRTUAL_ENV"})


def main() -> int:
    """Run as the process: read the values, write the selection's remarks as a line, then its text as a JSON string."""
    expression, size, limits = json.loads(sys.stdin.buffer.readline())
    if sys.platform != "win32":
        import resource

        most = _MEMORY + _MEMORY_PER_BYTE * size
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
    data = b"[" + sys.stdin.buffer.read() + b"]"
    try:
        try:
            values = parsed(data)
        except ValueError:
            raise InvalidRequest(NEEDS_JSON) from None
        del data
        projection = Projection(expression, Limits.model_validate(limits))
        selection = projection.selection(values[0] if len(values) == 1 else values, projection.steps(size))
    except InvalidRequest as error:
        sys.stdout.buffer.write(str(error).encode("utf-8", "replace"))
        return _REFUSED
    sys.stdout.buffer.write(selection.remarks() + b"\n")
    json.dump(selection.text, sys.stdout)
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    # Exit without freeing the parsed values.
    code = main()
    sys.stdout.flush()
    os._exit(code)
