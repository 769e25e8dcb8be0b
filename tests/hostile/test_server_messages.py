"""Every hostile message of a server: no other server or client is affected, and the server recovers.

CI tries each input on one transport, so that every transport gets many inputs. `python -m tests.hostile --named` tries
each input on all of its transports.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.case import Case
from tests.hostile.deeds import EVERY_WIRE, Input
from tests.hostile.inputs import INPUTS, MESSAGES, once_each


@pytest.mark.promise("malformed-dropped")
@pytest.mark.parametrize(("shown", "wire"), [pytest.param(*pair, id=str(pair[0])) for pair in once_each(MESSAGES)])
async def test_a_hostile_message_hurts_nobody_else_and_its_server_recovers(
    shown: Input, wire: str, tmp_path: Path
) -> None:
    case = Case(shown, wire, tmp_path)
    await case.run()
    assert case.problems == []
    assert case.calls >= 3


def test_there_are_at_least_sixty_inputs_on_each_transport() -> None:
    counts = {wire: sum(wire in shown.transports for shown in INPUTS.values()) for wire in EVERY_WIRE}
    assert min(counts.values()) >= 60, counts
