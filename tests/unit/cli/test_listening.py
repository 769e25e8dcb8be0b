"""The socket at which a gateway listens over HTTP: no other program gets its address, on any system."""

from __future__ import annotations

import socket
import sys

import pytest

from mcp_optimizer.cli.serve_http import listen
from mcp_optimizer.errors import ConfigurationError


def test_an_address_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"Cannot listen on 127\.0\.0\.1:{port}: .* --http"):
            listen("127.0.0.1", port)


def test_on_windows_no_other_program_may_listen_at_the_same_address(monkeypatch: pytest.MonkeyPatch) -> None:
    # Linux has no such option; what is set here can be read back.
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    with listen("127.0.0.1", 0) as listening:
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
