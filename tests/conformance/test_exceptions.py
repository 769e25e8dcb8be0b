"""The list of what the gateway may lose must not grow."""

from __future__ import annotations

from tests.conformance.__main__ import exceptions


def test_nothing_that_passes_directly_is_excepted() -> None:
    assert exceptions() == {}
