"""All hostile inputs from servers by name, and the ones that a short run tries. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable

from tests.hostile.deeds import EVERY_WIRE, Input
from tests.hostile.lists import HANDSHAKES, LISTINGS
from tests.hostile.messages import ANSWERS, NOTICES, REQUESTS
from tests.hostile.processes import PROCESSES
from tests.hostile.responses import RESPONSES
from tests.hostile.streams import STREAMS

MESSAGES = (*HANDSHAKES, *LISTINGS, *ANSWERS, *NOTICES, *REQUESTS)
TRANSPORT_INPUTS = (*PROCESSES, *RESPONSES, *STREAMS)
INPUTS: dict[str, Input] = {shown.name: shown for shown in (*MESSAGES, *TRANSPORT_INPUTS)}


def once_each(inputs: Iterable[Input]) -> list[tuple[Input, str]]:
    """Each input on one transport, in turn, so that every transport gets its share."""
    used = dict.fromkeys(EVERY_WIRE, 0)
    chosen = []
    for shown in inputs:
        if not shown.slow:
            wire = min(shown.transports, key=lambda wire: used[wire])
            used[wire] += 1
            chosen.append((shown, wire))
    return chosen
