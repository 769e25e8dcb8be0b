"""The list of checks that may fail through the gateway must not grow."""

from __future__ import annotations

from tests.conformance.__main__ import exceptions


def test_the_only_exceptions_are_checks_that_need_a_stream_where_there_is_none() -> None:
    polling = "2025-11-25/server-sse-polling/server-sse-disconnect-resume/ServerDisconnectResume (server as a child)"
    listed = "2025-11-25/server-sse-multiple-streams/server-sse-streams-functional/ServerSSEStreamsFunctional"
    assert exceptions().keys() <= {polling, f"{listed} (server over HTTP)", f"{listed} (server as a child)"}
