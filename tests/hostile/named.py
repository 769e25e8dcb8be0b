"""Tries every named input on each of its transports, which takes too long for CI, and prints a line for each."""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path

from tests.hostile.case import Case
from tests.hostile.inputs import INPUTS


async def run_named(only: str, wire: str, *, slow: bool) -> int:
    """Returns how many inputs caused problems."""
    # The SDK's client logs what it cannot read. The gateway's command line silences it too.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    failures = 0
    pairs = [
        (shown, on) for shown in INPUTS.values() for on in shown.transports if only in shown.name and wire in ("", on)
    ]
    for shown, on in pairs:
        if shown.slow and not slow:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            case = Case(shown, on, Path(folder))
            try:
                await case.run()
            except Exception as error:  # noqa: BLE001 - the next input is tried even if this one fails
                case.problems.append(f"the run itself ended: {error!r}")
        failures += bool(case.problems)
        word = "FAILED" if case.problems else "ok"
        figures = f"{time.monotonic() - started:5.1f} s, {case.calls:4} calls, loop {1_000 * case.longest_stop:5.0f} ms"
        print(
            f"{word:7}{on:13} {figures}  {shown.name}", *(f"    {p}" for p in case.problems[:4]), sep="\n", flush=True
        )
    print(f"{len(pairs)} runs, {failures} failed")
    return failures
