"""The list of checks that may fail through the gateway must not grow."""

from __future__ import annotations

from tests.conformance.__main__ import exceptions


def test_the_only_exception_is_a_check_that_stdio_cannot_pass() -> None:
    polling = "2025-11-25/server-sse-polling/server-sse-disconnect-resume/ServerDisconnectResume (server as a child)"
    assert exceptions().keys() <= {polling}
