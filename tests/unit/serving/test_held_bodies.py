"""Large bodies share a room, of which one caller has at most half."""

from __future__ import annotations

from itertools import count, takewhile

import pytest

from mcp_optimizer.limits import Limits
from mcp_optimizer.serving.gate import Gate, Refused
from mcp_optimizer.serving.http_gate import HeldBody, RoomForBodies

LARGEST = 100_000
COUNTED = LARGEST - 16_000


def room() -> RoomForBodies:
    return RoomForBodies(Gate(Limits(request_bytes=LARGEST)))


def is_let_in(body: HeldBody) -> bool:
    try:
        body.grow(LARGEST)
    except Refused:
        return False
    return True


def filled_by(caller: str, place: RoomForBodies) -> list[HeldBody]:
    """As many of the largest bodies as one caller gets in."""
    return list(takewhile(is_let_in, (HeldBody(place, caller) for _ in count())))


def test_a_caller_with_many_large_bodies_leaves_half_of_the_room_to_others() -> None:
    place = room()
    loud = filled_by("loud", place)
    quiet = filled_by("quiet", place)
    assert len(loud) == len(quiet) == 2 * LARGEST // COUNTED


def test_room_that_is_released_can_be_taken_again() -> None:
    place = room()
    for _ in range(3):
        for body in (held := filled_by("loud", place)):
            body.release()
            body.release()
        assert held


def test_ordinary_requests_are_let_in_however_full_it_is() -> None:
    place = room()
    kept = [filled_by(caller, place) for caller in ("loud", "quiet")]
    HeldBody(place, "loud").grow(16_000)
    with pytest.raises(Refused):
        HeldBody(place, "third").grow(LARGEST)
    assert all(kept)
