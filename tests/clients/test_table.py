"""The committed table of real clients: we cost no more than the servers themselves, and no reply is read twice."""

from __future__ import annotations

import pytest

from tests.clients.table import RESULTS

MOST = 1.1
"""What a client may give its model of a find_tool reply, over its text."""
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in RESULTS.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| client")
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_first_request_through_us_costs_no_more_than_direct(row: tuple[str, ...]) -> None:
    direct, through_us = (int(cell.replace(",", "")) for cell in row[2:4])
    assert through_us <= direct


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_reply_of_find_tool_is_read_once(row: tuple[str, ...]) -> None:
    assert float(row[6]) <= MOST
