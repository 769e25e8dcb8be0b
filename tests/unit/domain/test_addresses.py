"""Which addresses the settings accept."""

from __future__ import annotations

import pytest

from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.domain.addresses import browser_address
from mcp_optimizer.errors import ConfigurationError


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("", ""),
        ("https://gate.example", "https://gate.example"),
        ("https://gate.example/", "https://gate.example"),
        ("http://[::1]:8765/tools/", "http://[::1]:8765/tools"),
    ],
)
def test_an_address_for_browsers_ends_without_a_slash(given: str, kept: str) -> None:
    assert browser_address(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        "gate.example",
        "ftp://gate.example",
        "javascript:alert(1)",
        "https://",
        "https://gate.example/?a=b",
        "https://gate.example/#a",
        "https://me:secret@gate.example",
        "https://gate.example:port",
        "https://gate example",
        "https://gate.example\\@evil.example",
        "https://gate.example\n.evil.example",
        "https://[gate.example",
    ],
)
def test_what_is_no_address_for_browsers_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match="http:// or https:// with a host"):
        load_settings({"public_url": given}, {})
