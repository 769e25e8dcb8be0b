"""End-to-end tests start many gateways, so they search by words only, except those about the encoder."""

from __future__ import annotations

import pytest

from mcp_optimizer.app import servers
from tests.e2e.running import WARM_DEMO


@pytest.fixture(autouse=True, scope="session")
def _warm(warm_start: None) -> None:
    """Most of them start processes that are forks."""


@pytest.fixture(autouse=True)
def _by_words(monkeypatch: pytest.MonkeyPatch, _own_folders: None) -> None:
    monkeypatch.setenv("MCP_OPTIMIZER_ENCODER", "none")


@pytest.fixture(autouse=True)
def _warm_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """For gateways in the process of the tests; those in others have it from `tests/warm/start.py`."""
    monkeypatch.setattr(servers, "demo_server_commands", lambda: WARM_DEMO)
