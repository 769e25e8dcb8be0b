"""What one gateway wrote of a client, another one can read, wherever the first one was interrupted."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.runtime.sharing.journal import Journal, Standing, new_file, standing


def line(method: str, request: Any = None, **params: Any) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if request is None else message | {"id": request}).encode()


HELLO = line("initialize", 1, protocolVersion="2025-11-25")
READY = line("notifications/initialized")
CALL = line("tools/call", "a", name="call_tool")
LEVEL = line("logging/setLevel", 2, level="debug")
WATCH = line("resources/subscribe", 3, uri="file:///a")


@pytest.fixture
def journal() -> Journal:
    return Journal(new_file())


def say(journal: Journal, *lines: bytes) -> None:
    journal.heard(b"".join(one + b"\n" for one in lines))


def content(journal: Journal) -> bytes:
    return os.pread(journal.file, journal.size, 0)


def test_a_client_that_said_nothing_is_new(journal: Journal) -> None:
    assert journal.standing().is_new


def test_the_introduction_and_what_it_asked_for_are_kept_and_open_requests_are_open(journal: Journal) -> None:
    say(journal, HELLO, READY, LEVEL, WATCH, CALL)
    for request in (1, 2, 3):
        journal.answered(request)
    assert journal.standing() == Standing((HELLO, READY, LEVEL, WATCH), (("a", CALL),))


def test_a_subscription_that_ended_and_a_request_that_was_cancelled_are_forgotten(journal: Journal) -> None:
    say(journal, WATCH, CALL)
    journal.answered(3)
    say(journal, line("resources/unsubscribe", 4, uri="file:///a"), line("notifications/cancelled", requestId="a"))
    journal.answered(4)
    assert journal.standing().is_new


def test_only_the_last_log_level_is_kept(journal: Journal) -> None:
    last = line("logging/setLevel", 5, level="error")
    say(journal, LEVEL, last)
    journal.answered(2)
    journal.answered(5)
    assert journal.standing().kept == (last,)


def test_half_a_line_in_either_direction_is_known(journal: Journal) -> None:
    journal.heard(CALL[:10])
    journal.writing(is_half=True)
    assert (journal.standing().rest, journal.standing().is_half_written) == (CALL[:10], True)
    journal.heard(CALL[10:] + b"\n")
    journal.writing(is_half=False)
    assert journal.standing() == Standing(open=(("a", CALL),))


def test_a_shorter_journal_says_the_same(journal: Journal) -> None:
    say(journal, HELLO, READY, LEVEL, WATCH, CALL)
    for request in (1, 2, 3):
        journal.answered(request)
    for number in range(1_000):
        say(journal, line("ping", number + 10))
        journal.answered(number + 10)
    journal.heard(b'{"half')
    shorter = journal.shortened()
    assert shorter.standing() == journal.standing()
    assert shorter.size < journal.size / 10


@given(st.integers(0, 2_000), st.binary(max_size=40))
def test_a_journal_that_was_cut_anywhere_can_be_read_and_loses_only_its_end(cut: int, noise: bytes) -> None:
    journal = Journal(new_file())
    say(journal, HELLO)
    journal.answered(1)
    say(journal, CALL)
    journal.heard(noise)
    written = content(journal)[:cut]
    journal.close()
    found = standing(written)
    assert set(found.kept) <= {HELLO}
    whole = b"".join([HELLO + b"\n", CALL + b"\n", noise])
    assert all(one in whole for _, one in found.open)
    assert found.rest in whole


@given(st.binary(max_size=200))
def test_nothing_that_a_client_says_makes_its_journal_unreadable(said: bytes) -> None:
    journal = Journal(new_file())
    journal.heard(said)
    assert journal.standing().rest == said.split(b"\n")[-1]
    assert journal.shortened().standing() == journal.standing()
    journal.close()


def test_a_journal_that_cannot_be_written_costs_nothing_else(journal: Journal) -> None:
    journal.close()
    journal.heard(CALL)
    journal.answered("a")
