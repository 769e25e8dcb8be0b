"""Every named hostile input of a server: nobody but that server is hurt, and it recovers.

CI tries each input on one transport, and so all transports with many inputs; `python -m tests.hostile --named` tries
each on all of its transports.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.case import Case
from tests.hostile.deeds import EVERY_WIRE, Input
from tests.hostile.inputs import INPUTS


def _chosen() -> list[tuple[Input, str]]:
    """Each input once, on the transports in turn."""
    used = dict.fromkeys(EVERY_WIRE, 0)
    chosen = []
    for shown in INPUTS.values():
        if shown.slow:
            continue
        wire = min(shown.wires, key=lambda wire: used[wire])
        used[wire] += 1
        chosen.append((shown, wire))
    return chosen


@pytest.mark.parametrize(
    ("shown", "wire"), [pytest.param(*pair, id=f"{pair[0].name} ({pair[1]})") for pair in _chosen()]
)
async def test_a_hostile_input_hurts_nobody_else_and_its_server_recovers(
    shown: Input, wire: str, tmp_path: Path
) -> None:
    case = Case(shown, wire, tmp_path)
    await case.run()
    assert case.problems == []
    assert case.calls > 5


def test_there_are_at_least_sixty_inputs_on_each_transport() -> None:
    counts = {wire: sum(wire in shown.wires for shown in INPUTS.values()) for wire in EVERY_WIRE}
    assert min(counts.values()) >= 60, counts
