"""The list of what the gateway may lose must not grow."""

from __future__ import annotations

from tests.conformance.__main__ import exceptions


def test_only_what_a_child_process_has_not_is_excepted() -> None:
    polling = "2025-11-25/server-sse-polling/server-sse-disconnect-resume/ServerDisconnectResume (server as a child)"
    assert exceptions().keys() <= {polling}
