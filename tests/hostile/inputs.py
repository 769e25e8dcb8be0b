"""All hostile inputs of servers by their names. Standard library only."""

from __future__ import annotations

from tests.hostile.deeds import Input
from tests.hostile.lists import HANDSHAKES, LISTINGS
from tests.hostile.messages import ANSWERS, NOTICES, REQUESTS
from tests.hostile.processes import PROCESSES
from tests.hostile.responses import RESPONSES
from tests.hostile.streams import STREAMS

_TABLES = (HANDSHAKES, LISTINGS, ANSWERS, NOTICES, REQUESTS, PROCESSES, RESPONSES, STREAMS)
INPUTS: dict[str, Input] = {made.name: made for table in _TABLES for made in table}
