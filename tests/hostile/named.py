"""Every named input on each of its transports, by hand: more than CI has time for, and one line for each."""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path

from tests.hostile.case import Case
from tests.hostile.inputs import INPUTS


async def run_named(only: str, wire: str, *, slow: bool) -> int:
    """How many inputs hurt somebody."""
    # The SDK's client quotes what it cannot read; the gateway's own command line leaves that out, too.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    failures = 0
    pairs = [(shown, on) for shown in INPUTS.values() for on in shown.wires if only in shown.name and wire in ("", on)]
    for shown, on in pairs:
        if shown.slow and not slow:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            case = Case(shown, on, Path(folder))
            try:
                await case.run()
            except Exception as error:  # noqa: BLE001 - the next input is tried whatever became of this one
                case.problems.append(f"the run itself ended: {error!r}")
        failures += bool(case.problems)
        word = "FAILED" if case.problems else "ok"
        figures = f"{time.monotonic() - started:5.1f} s, {case.calls:4} calls, loop {1_000 * case.longest_stop:5.0f} ms"
        print(
            f"{word:7}{on:13} {figures}  {shown.name}", *(f"    {p}" for p in case.problems[:4]), sep="\n", flush=True
        )
    print(f"{len(pairs)} runs, {failures} failed")
    return failures
