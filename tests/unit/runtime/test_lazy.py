"""Lazy properties are computed once, and no instance locks out another."""

from __future__ import annotations

import threading

from mcp_optimizer.runtime.lazy import lazy


class Reading:
    """Something that is read only when the test allows it."""

    def __init__(self, may_go_on: threading.Event) -> None:
        self._may_go_on = may_go_on
        self.begun = threading.Event()
        self.times = 0

    @lazy
    def size(self) -> int:
        """How large it is."""
        self.times += 1
        self.begun.set()
        assert self._may_go_on.wait(10)
        return 7


def test_a_value_is_made_once() -> None:
    go_on = threading.Event()
    go_on.set()
    reading = Reading(go_on)
    assert (reading.size, reading.size, reading.times) == (7, 7, 1)
    assert Reading.size.__doc__ == "How large it is."


def test_one_that_takes_long_keeps_no_other_waiting() -> None:
    go_on, at_once = threading.Event(), threading.Event()
    at_once.set()
    long, short = Reading(go_on), Reading(at_once)
    thread = threading.Thread(target=lambda: long.size)
    thread.start()
    assert long.begun.wait(10)
    assert short.size == 7
    go_on.set()
    thread.join()
    assert long.size == 7
