"""Every hostile behaviour of a server below its messages: how it starts, ends, writes, reads and uses HTTP. No other
server or client is affected, and the server recovers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.case import Case
from tests.hostile.deeds import Input
from tests.hostile.inputs import TRANSPORT_INPUTS, once_each


@pytest.mark.promise("bad-server-delays-none", "inputs-limited")
@pytest.mark.parametrize(
    ("shown", "wire"), [pytest.param(*pair, id=str(pair[0])) for pair in once_each(TRANSPORT_INPUTS)]
)
async def test_a_hostile_transport_hurts_nobody_else_and_its_server_recovers(
    shown: Input, wire: str, tmp_path: Path
) -> None:
    case = Case(shown, wire, tmp_path)
    await case.run()
    assert case.problems == []
    assert case.calls >= 3
